import { type DescFile, fromBinary, toBinary } from "@bufbuild/protobuf";
import { type FileDescriptorProto, FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { createWritableIterable } from "@connectrpc/connect/protocol";
import { beforeAll, describe, expect, it } from "vitest";
import { file_agentsessions_v1_host_service } from "#gen/agentsessions/v1/host_service_pb.js";
import { file_agentsessions_v1_run_service } from "#gen/agentsessions/v1/run_service_pb.js";
import { file_agentsessions_v1_session_service } from "#gen/agentsessions/v1/session_service_pb.js";
import { ServerReflection, type ServerReflectionRequest } from "#gen/grpc/reflection/v1/reflection_pb.js";
import { ServerReflection as ServerReflectionAlpha } from "#gen/grpc/reflection/v1alpha/reflection_pb.js";
import { readDescriptors } from "../../src/rpc/reflection.ts";
import { type TestServer, testServer, transportTo } from "../support/server.ts";

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});

describe.each([
  ["v1", ServerReflection],
  ["v1alpha", ServerReflectionAlpha],
])("reflection %s", (_, service) => {
  const ask = async (...messageRequests: ServerReflectionRequest["messageRequest"][]) => {
    const client = createClient(service as typeof ServerReflection, transportTo(server.url));
    const questions = createWritableIterable<{ messageRequest: ServerReflectionRequest["messageRequest"] }>();
    const answers = client.serverReflectionInfo(questions)[Symbol.asyncIterator]();
    const received = [];
    for (const messageRequest of messageRequests) {
      await questions.write({ messageRequest });
      received.push((await answers.next()).value!.messageResponse);
    }
    questions.close();
    expect((await answers.next()).done).toBe(true);
    return received;
  };
  const filesOf = (answer: { case: string | undefined; value?: unknown }): FileDescriptorProto[] => {
    expect(answer.case).toBe("fileDescriptorResponse");
    const { fileDescriptorProto } = answer.value as { fileDescriptorProto: Uint8Array[] };
    return fileDescriptorProto.map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes));
  };

  it("lists the services", async () => {
    const [answer] = await ask({ case: "listServices", value: "" });
    expect(answer).toMatchObject({
      value: {
        service: [
          "agentsessions.v1.AdminService",
          "agentsessions.v1.ChannelService",
          "agentsessions.v1.HostService",
          "agentsessions.v1.RunService",
          "agentsessions.v1.SessionService",
          "grpc.health.v1.Health",
          "grpc.reflection.v1.ServerReflection",
          "grpc.reflection.v1alpha.ServerReflection",
        ].map((name) => ({ name })),
      },
    });
  });

  it("answers several questions on one stream: files by name and by symbol, with all imports and comments", async () => {
    const answers = await ask(
      { case: "fileByFilename", value: "agentsessions/v1/session_service.proto" },
      { case: "fileContainingSymbol", value: "agentsessions.v1.SessionService" },
      { case: "fileContainingSymbol", value: "agentsessions.v1.SessionService.SendMessage" },
      { case: "fileContainingSymbol", value: ".agentsessions.v1.SendMessageRequest.wait_timeout" },
      { case: "fileContainingSymbol", value: "agentsessions.v1.SEND_OUTCOME_EXPIRED" },
    );
    for (const answer of answers) {
      const files = filesOf(answer);
      expect(files[0]!.name).toBe("agentsessions/v1/session_service.proto");
      const names = files.map((file) => file.name);
      expect(names).toEqual([...new Set(names)]);
      expect(new Set(names)).toEqual(new Set([names[0], ...files.flatMap((file) => file.dependency)]));
      const comments = files[0]!.sourceCodeInfo!.location.map((location) => location.leadingComments);
      expect(comments.join()).toContain("Sends a message into a session");
    }
  });

  it("knows the extensions that carry the field rules", async () => {
    const [numbers, file] = await ask(
      { case: "allExtensionNumbersOfType", value: "google.protobuf.FieldOptions" },
      {
        case: "fileContainingExtension",
        value: {
          $typeName: "grpc.reflection.v1.ExtensionRequest",
          containingType: "google.protobuf.FieldOptions",
          extensionNumber: 1159,
        },
      },
    );
    expect((numbers!.value as { extensionNumber: number[] }).extensionNumber).toContain(1159);
    expect(filesOf(file!)[0]!.name).toBe("buf/validate/validate.proto");
  });

  it("answers what it does not know on the stream, without ending it", async () => {
    const answers = await ask(
      { case: "fileByFilename", value: "nope.proto" },
      { case: "fileContainingSymbol", value: "a.B" },
      { case: "allExtensionNumbersOfType", value: "a.B" },
      { case: undefined },
      { case: "listServices", value: "" },
    );
    const codes = answers.map((answer) => (answer.value as { errorCode?: number }).errorCode);
    expect(codes).toEqual([5, 5, 5, 3, undefined]);
  });
});

it("the committed descriptors are those of the generated code; else run `npm run generate`", () => {
  const registry = readDescriptors();
  const bytesOf = (file: DescFile | undefined) => {
    if (file === undefined) return undefined;
    const { sourceCodeInfo: _, ...proto } = file.proto;
    return Buffer.from(toBinary(FileDescriptorProtoSchema, proto)).toString("hex");
  };
  const compare = (file: DescFile): void => {
    const name = file.proto.name;
    if (name.startsWith("agentsessions/"))
      expect([name, bytesOf(registry.getFile(name))]).toEqual([name, bytesOf(file)]);
    file.dependencies.forEach(compare);
  };
  [
    file_agentsessions_v1_session_service,
    file_agentsessions_v1_run_service,
    file_agentsessions_v1_host_service,
  ].forEach(compare);
});
