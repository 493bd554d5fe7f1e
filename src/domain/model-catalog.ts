import type { ErrorFacts } from "./errors.ts";

/** The models that may be asked for, by name. An empty catalog knows nothing and refuses nothing. */
export type ModelCatalog = Readonly<Record<string, CatalogModel>>;

export interface CatalogModel {
  readonly alias?: string;
  /** Thinking levels it has; absent = all. */
  readonly thinking?: readonly string[];
}

export const thinkingLevels: readonly string[] = ["off", "minimal", "low", "medium", "high", "xhigh", "adaptive"];

/** The name of a model that is asked for by name or alias; undefined when the catalog, which is not empty, has no such model. */
export function canonicalModel(catalog: ModelCatalog, asked: string): string | undefined {
  const models = Object.entries(catalog);
  if (models.length === 0 || Object.hasOwn(catalog, asked)) return asked;
  return models.find(([, { alias }]) => alias === asked)?.[0];
}

/** The refusal of a model that the catalog does not have; `field` is where the request names it. */
export function unknownModel(catalog: ModelCatalog, model: string, field: string): ErrorFacts {
  return { kind: "model_invalid", field, model, models: Object.keys(catalog) };
}

/** Why a thinking level does not go with a model: there is no such level, or the model does not have it. */
export function findLevelRefusal(
  catalog: ModelCatalog,
  level: string | undefined,
  model: string | undefined,
): ErrorFacts | undefined {
  if (level === undefined) return undefined;
  if (!thinkingLevels.includes(level)) return { kind: "thinking_level_invalid", level, levels: thinkingLevels };
  const levels = levelsOf(catalog, model);
  if (model === undefined || levels === undefined || levels.includes(level)) return undefined;
  return { kind: "thinking_level_invalid", level, levels, model };
}

/** The levels a model of the catalog has; undefined where the catalog does not say. */
function levelsOf(catalog: ModelCatalog, model: string | undefined): readonly string[] | undefined {
  return model !== undefined && Object.hasOwn(catalog, model) ? catalog[model]!.thinking : undefined;
}
