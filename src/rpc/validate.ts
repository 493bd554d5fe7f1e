import { create, type DescField, type DescMessage, type DescService, type Message } from "@bufbuild/protobuf";
import { pathToString, type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { createValidator, type Validator } from "@bufbuild/protovalidate";
import type { Interceptor } from "@connectrpc/connect";
import { AttachmentSchema } from "#gen/agentsessions/v1/attachment_pb.js";
import { AppError, type FieldViolation } from "../domain/errors.ts";

/**
 * Checks every request against the rules of its proto before the verb sees it, and refuses text that could be stored or
 * answered by no one: U+0000, which Postgres does not keep, and half surrogate pairs, which are not UTF-8. Files have
 * rules of their own for both, which the verbs hold them to.
 * All broken rules are reported at once, with field paths. Throws AppError field_invalid.
 */
export function validateRequests(validator: Validator): Interceptor {
  const check = (method: { input: DescMessage }, message: Message) => {
    const violations = [
      ...brokenRules(validator, method.input, message),
      ...unstorableTexts(reflect(method.input, message)),
    ];
    if (violations.length > 0) throw new AppError({ kind: "field_invalid", violations });
  };
  return (next) => (request) => {
    if (!request.stream) {
      check(request.method, request.message);
      return next(request);
    }
    return next({ ...request, message: checkEach(request.message, (message) => check(request.method, message)) });
  };
}

/** A validator that has compiled the rules of these services: the first check of a message otherwise costs 100 ms. */
export function warmValidator(services: readonly DescService[]): Validator {
  const validator = createValidator();
  for (const { input } of services.flatMap((service) => service.methods)) validator.validate(input, create(input));
  return validator;
}

async function* checkEach<T>(messages: AsyncIterable<T>, check: (message: T) => void): AsyncGenerator<T> {
  for await (const message of messages) {
    check(message);
    yield message;
  }
}

function brokenRules(validator: Validator, input: DescMessage, message: Message): FieldViolation[] {
  const result = validator.validate(input, message);
  switch (result.kind) {
    case "valid":
      return [];
    case "invalid":
      return result.violations.map((each) => ({
        field: pathToString(each.field),
        description: each.message || each.ruleId,
      }));
    case "error":
      throw result.error;
  }
}

function* unstorableTexts(message: ReflectMessage, prefix = ""): Generator<FieldViolation> {
  for (const field of message.fields) {
    if (message.isSet(field) && !isFile(field)) yield* unstorableIn(message, field, `${prefix}${field.name}`);
  }
}

/** A text file may well contain U+0000: it is stored as bytes (S6.6). */
function isFile({ message }: DescField): boolean {
  return message?.typeName === AttachmentSchema.typeName;
}

function* unstorableIn(message: ReflectMessage, field: DescField, path: string): Generator<FieldViolation> {
  switch (field.fieldKind) {
    case "scalar":
      yield* textProblem(message.get(field), path);
      break;
    case "message":
      yield* unstorableTexts(message.get(field), `${path}.`);
      break;
    case "list":
      for (const [index, item] of [...message.get(field)].entries()) yield* valueProblem(item, `${path}[${index}]`);
      break;
    case "map":
      for (const [key, value] of message.get(field)) {
        yield* textProblem(key, path);
        yield* valueProblem(value, `${path}["${String(key)}"]`);
      }
      break;
    case "enum":
      break;
  }
}

function* valueProblem(value: unknown, path: string): Generator<FieldViolation> {
  if (typeof value === "object" && value !== null && "fields" in value) {
    yield* unstorableTexts(value as ReflectMessage, `${path}.`);
  } else {
    yield* textProblem(value, path);
  }
}

function* textProblem(value: unknown, field: string): Generator<FieldViolation> {
  if (typeof value !== "string") return;
  if (value.includes("\0")) yield { field, description: "must not contain the character U+0000" };
  if (!value.isWellFormed()) yield { field, description: "must be valid Unicode, without half surrogate pairs" };
}
