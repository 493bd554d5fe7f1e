import { readFileSync } from "node:fs";
import { createFileRegistry, type DescFile, type FileRegistry, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, type ConnectRouter } from "@connectrpc/connect";
import { ServerReflection, type ServerReflectionRequest } from "#gen/grpc/reflection/v1/reflection_pb.js";
import { ServerReflection as ServerReflectionAlpha } from "#gen/grpc/reflection/v1alpha/reflection_pb.js";

/** Descriptors with comments, as `buf build --as-file-descriptor-set -o gen/descriptors.binpb` writes them. */
const descriptorFile = new URL("../../gen/descriptors.binpb", import.meta.url);

type Query = ServerReflectionRequest["messageRequest"];

/**
 * Serves gRPC server reflection, v1 and v1alpha, so that grpcurl and its kin need no proto files (C182).
 * Comments are part of it: `describe` explains every field. The descriptors are read at the first question.
 */
export function routeReflection(router: ConnectRouter, services: readonly string[]): void {
  const names = [...services, ServerReflection.typeName, ServerReflectionAlpha.typeName].sort();
  let index: DescriptorIndex | undefined;
  const respond = async function* <
    R extends { host: string; messageRequest: { case?: string | undefined; value?: unknown } },
  >(requests: AsyncIterable<R>) {
    for await (const request of requests) {
      index ??= new DescriptorIndex(readDescriptors());
      const messageResponse = answer(index, names, request.messageRequest as Query);
      yield { validHost: request.host, originalRequest: request, messageResponse };
    }
  };
  router.service(ServerReflection, { serverReflectionInfo: respond });
  router.service(ServerReflectionAlpha, { serverReflectionInfo: respond });
}

/** All files of the committed descriptor set. */
export function readDescriptors(): FileRegistry {
  return createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(descriptorFile)));
}

function answer(index: DescriptorIndex, services: readonly string[], query: Query) {
  switch (query.case) {
    case "listServices":
      return { case: "listServicesResponse" as const, value: { service: services.map((name) => ({ name })) } };
    case "fileByFilename":
      return filesOrError(index, index.registry.getFile(query.value), `file ${query.value}`);
    case "fileContainingSymbol":
      return filesOrError(index, index.findSymbol(query.value), `symbol ${query.value}`);
    case "fileContainingExtension": {
      const { containingType, extensionNumber } = query.value;
      const extension = index.extensionsOf(containingType).find((each) => each.number === extensionNumber);
      return filesOrError(index, extension?.file, `extension ${extensionNumber} of ${containingType}`);
    }
    case "allExtensionNumbersOfType": {
      if (index.registry.getMessage(query.value) === undefined) return notFound(`message ${query.value}`);
      const extensionNumber = index.extensionsOf(query.value).map((each) => each.number);
      return { case: "allExtensionNumbersResponse" as const, value: { baseTypeName: query.value, extensionNumber } };
    }
    default:
      return errorAnswer(Code.InvalidArgument, "the request asks nothing; set one field of message_request");
  }
}

function filesOrError(index: DescriptorIndex, file: DescFile | undefined, what: string) {
  if (file === undefined) return notFound(what);
  return { case: "fileDescriptorResponse" as const, value: { fileDescriptorProto: index.withImports(file) } };
}

function notFound(what: string) {
  return errorAnswer(Code.NotFound, `no ${what}`);
}

function errorAnswer(errorCode: Code, errorMessage: string) {
  return { case: "errorResponse" as const, value: { errorCode, errorMessage } };
}

/** Finds files by what they define. */
class DescriptorIndex {
  readonly registry: FileRegistry;
  readonly #symbols = new Map<string, DescFile>();

  constructor(registry: FileRegistry) {
    this.registry = registry;
    for (const type of registry) {
      for (const name of [type.typeName, ...memberNames(type)]) this.#symbols.set(name, type.file);
    }
  }

  findSymbol(name: string): DescFile | undefined {
    return this.#symbols.get(name.replace(/^\./, ""));
  }

  extensionsOf(message: string) {
    return [...this.registry]
      .filter((type) => type.kind === "extension")
      .filter((each) => each.extendee.typeName === message);
  }

  /** A file and everything it imports, itself first, each once. */
  withImports(file: DescFile): Uint8Array[] {
    const files = new Set<DescFile>();
    const add = (each: DescFile): void => {
      if (files.has(each)) return;
      files.add(each);
      each.dependencies.forEach(add);
    };
    add(file);
    return [...files].map((each) => toBinary(FileDescriptorProtoSchema, each.proto));
  }
}

type DescType = FileRegistry extends Iterable<infer T> ? T : never;

function memberNames(type: DescType): string[] {
  switch (type.kind) {
    case "message":
      return [...type.fields, ...type.oneofs].map(({ name }) => `${type.typeName}.${name}`);
    case "service":
      return type.methods.map(({ name }) => `${type.typeName}.${name}`);
    case "enum": {
      // Values live in the scope that holds the enum.
      const scope = type.typeName.slice(0, -type.name.length);
      return type.values.map(({ name }) => scope + name);
    }
    case "extension":
      return [];
  }
}
