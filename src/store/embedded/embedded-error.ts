/** The embedded Postgres cannot run here; the message says why and what to do, for the person who started the server. */
export class EmbeddedError extends Error {
  constructor(problem: string, wayOut = orUrl, options?: ErrorOptions) {
    super(`${problem}\n${wayOut}`, options);
    this.name = "EmbeddedError";
  }
}

const orUrl =
  "To use a Postgres of your own (15 or newer), set DATABASE_URL, for example DATABASE_URL=postgres://user:password@host/database";
