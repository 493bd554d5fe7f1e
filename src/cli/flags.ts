import { InvalidArgumentError, Option } from "commander";
import { listenAddressRule, parseListenAddress } from "../config/listen-address.ts";
import { loadConfig } from "../config/load.ts";
import { type Config, defaultConfig } from "../config/schema.ts";
import type { ListenAddress } from "../rpc/address.ts";

export function listenOption(): Option {
  return new Option(
    "--listen <HOST:PORT>",
    "where to listen; port 0 = any free port (default: server.listen of the configuration, 127.0.0.1:50051)",
  ).argParser(toListenAddress);
}

export function dataDirOption(): Option {
  const text = "where the embedded database keeps its files; not used when DATABASE_URL is set";
  return new Option("--data-dir <DIR>", text).default("./data");
}

export function configOption(): Option {
  return new Option("--config <FILE>", "configuration file (JSON5); agentsessions.example.json5 shows every key");
}

/** The configuration of --config, or the defaults without one. Throws ConfigFileError. */
export function readConfig(file: string | undefined): Config {
  return file === undefined ? defaultConfig() : loadConfig(file);
}

function toListenAddress(text: string): ListenAddress {
  const address = parseListenAddress(text);
  if (address === undefined) throw new InvalidArgumentError(`expected ${listenAddressRule}`);
  return address;
}
