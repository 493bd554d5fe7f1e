import { readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import type { TlsFiles } from "./config/schema.ts";
import type { TlsMaterial } from "./rpc/listener.ts";

/** A certificate, key or list of authorities that cannot be used. */
export class TlsFileError extends Error {
  constructor(problem: string) {
    super(problem);
    this.name = "TlsFileError";
  }
}

/** Reads certificate, key and client authorities and checks that they fit. Throws TlsFileError. */
export function readTlsFiles({ certFile, keyFile, clientCaFile }: TlsFiles): TlsMaterial {
  const material = {
    cert: readPem("server.tls.certFile", certFile),
    key: readPem("server.tls.keyFile", keyFile),
    ...(clientCaFile !== undefined && { ca: readPem("server.tls.clientCaFile", clientCaFile) }),
  };
  try {
    createSecureContext(material);
  } catch (error) {
    throw new TlsFileError(`the files of server.tls do not fit together: ${(error as Error).message}`);
  }
  return material;
}

function readPem(setting: string, file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new TlsFileError(`${setting} ${file} cannot be read: ${(error as Error).message}`);
  }
}
