import { canonicalModel, findLevelRefusal, type ModelCatalog } from "../domain/model-catalog.ts";

/** Where a configuration names models. */
interface ModelSettings {
  readonly model?: string | undefined;
  readonly thinking?: string | undefined;
}

interface AgentModels extends ModelSettings {
  readonly subagents?: ModelSettings | undefined;
}

interface CatalogUse {
  readonly models: ModelCatalog;
  readonly agents: { readonly defaults: AgentModels; readonly list: readonly AgentModels[] };
}

export interface CatalogProblem {
  readonly path: readonly (string | number)[];
  readonly input: unknown;
  readonly message: string;
}

/**
 * Holds a configuration to its own catalog: an alias means one model, every configured model is in the catalog, by its name,
 * and every thinking level that applies by default is one that the model by default has. So no default is ever refused
 * to a spawn. Without a catalog nothing is checked.
 */
export function checkCatalog({ models, agents }: CatalogUse): CatalogProblem[] {
  if (Object.keys(models).length === 0) return [];
  const { defaults, list } = agents;
  const places: Place[] = [
    { path: ["agents", "defaults"], at: defaults },
    { path: ["agents", "defaults", "subagents"], at: defaults.subagents ?? {} },
    ...list.flatMap((agent, index): Place[] => [
      { path: ["agents", "list", index], at: agent },
      { path: ["agents", "list", index, "subagents"], at: agent.subagents ?? {} },
    ]),
  ];
  const unknown = [...checkAliases(models), ...places.flatMap((place) => checkModel(models, place))];
  if (unknown.length > 0) return unknown;
  return list.flatMap((agent, index) => checkLevels(models, { defaults, agent, index }));
}

interface Place {
  readonly path: readonly (string | number)[];
  readonly at: ModelSettings;
}

function checkModel(models: ModelCatalog, { path, at: { model } }: Place): CatalogProblem[] {
  if (model === undefined || Object.hasOwn(models, model)) return [];
  const meant = canonicalModel(models, model);
  const hint = meant === undefined ? "" : `; "${model}" is the alias of "${meant}"`;
  return [{ path: [...path, "model"], input: model, message: `the name of a model in models${hint}` }];
}

function checkAliases(models: ModelCatalog): CatalogProblem[] {
  const taken = new Set(Object.keys(models));
  return Object.entries(models).flatMap(([name, { alias }]) => {
    if (alias === undefined) return [];
    const isTaken = taken.has(alias);
    taken.add(alias);
    return isTaken
      ? [
          {
            path: ["models", name, "alias"],
            input: alias,
            message: "an alias that no other model has as alias or name",
          },
        ]
      : [];
  });
}

/** What applies to an agent and to its sub-agents when nothing else is asked for. */
function checkLevels(
  models: ModelCatalog,
  { defaults, agent, index }: { defaults: AgentModels; agent: AgentModels; index: number },
): CatalogProblem[] {
  const own = { model: agent.model ?? defaults.model, thinking: agent.thinking ?? defaults.thinking };
  const spawned = {
    model: agent.subagents?.model ?? defaults.subagents?.model ?? own.model,
    thinking: agent.subagents?.thinking ?? defaults.subagents?.thinking ?? own.thinking,
  };
  const path = ["agents", "list", index];
  return [
    ...checkLevel(models, { path, at: own }, "runs"),
    ...checkLevel(models, { path: [...path, "subagents"], at: spawned }, "sub-agents"),
  ];
}

function checkLevel(models: ModelCatalog, { path, at }: Place, whose: string): CatalogProblem[] {
  const refusal = findLevelRefusal(models, at.thinking, at.model);
  if (refusal?.kind !== "thinking_level_invalid") return [];
  const levels = refusal.levels.join(", ");
  const message = `a level that model "${at.model}" has, since both apply to its ${whose}: ${levels}`;
  return [{ path: [...path, "thinking"], input: at.thinking, message }];
}
