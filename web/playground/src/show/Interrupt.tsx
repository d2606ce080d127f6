// The question of a run as a form, made from its JSON Schema. Fields without a type in the schema
// are text fields.
import type { ResumeEntry } from "capstan";
import { type FormEvent, type ReactNode, useState } from "react";

import { isObject, isText } from "../json.js";
import { Button } from "../ui/Button.js";

export type OnAnswer = (resume: readonly ResumeEntry[], text: string) => void;

export interface Asked {
  id: string;
  reason: string;
  message?: string;
  responseSchema?: { properties?: Record<string, Field>; required?: string[] };
}

interface Field {
  type?: string;
  title?: string;
  enum?: (string | number | boolean | null)[];
}

/** The question of an event; undefined if it is no interrupt, or if its members do not fit. */
export function askedOf({ type, data }: Record<string, unknown>): Asked | undefined {
  if (!isText(type) || type.toUpperCase() !== "INTERRUPT" || !isObject(data)) return undefined;
  const { id, reason, message, responseSchema: schema } = data;
  const fits =
    isText(id) && isText(reason) && isOptional(message, isText) && isOptional(schema, isSchema);
  return fits ? (data as unknown as Asked) : undefined;
}

function isSchema(schema: unknown): boolean {
  if (!isObject(schema)) return false;
  const { properties, required } = schema;
  const areFields = (all: unknown) => isObject(all) && Object.values(all).every(isField);
  return (
    isOptional(properties, areFields) &&
    isOptional(required, (names) => Array.isArray(names) && names.every(isText))
  );
}

function isField(field: unknown): boolean {
  if (!isObject(field)) return false;
  const isChoice = (value: unknown) =>
    value === null || ["string", "number", "boolean"].includes(typeof value);
  return (
    isOptional(field["type"], isText) &&
    isOptional(field["title"], isText) &&
    isOptional(field["enum"], (all) => Array.isArray(all) && all.every(isChoice))
  );
}

function isOptional(value: unknown, check: (value: unknown) => boolean): boolean {
  return value === undefined || check(value);
}

export function Interrupt({
  asked,
  onAnswer,
}: {
  asked: Asked;
  onAnswer?: OnAnswer | undefined;
}): ReactNode {
  const [isDone, setDone] = useState(false);
  const fields = Object.entries(asked.responseSchema?.properties ?? { answer: {} });
  const settle = (status: ResumeEntry["status"], payload?: unknown) => {
    setDone(true);
    onAnswer?.(
      [{ interruptId: asked.id, status, ...(payload === undefined ? {} : { payload }) }],
      status === "resolved" ? JSON.stringify(payload) : "(no answer)",
    );
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    settle(
      "resolved",
      Object.fromEntries(fields.flatMap(([name, field]) => valueOf(field, form.get(name), name))),
    );
  };
  return (
    <form className="card interrupt" aria-label="Question" onSubmit={submit}>
      <strong dir="auto">{asked.message ?? asked.reason}</strong>
      <fieldset disabled={isDone || !onAnswer}>
        {fields.map(([name, field]) => (
          <Input
            key={name}
            name={name}
            field={field}
            isRequired={asked.responseSchema?.required?.includes(name) ?? false}
          />
        ))}
        <div className="row">
          <Button type="submit" look="primary" size="small">
            Answer
          </Button>
          <Button size="small" onClick={() => settle("cancelled")}>
            Rather not
          </Button>
        </div>
      </fieldset>
    </form>
  );
}

function Input({
  name,
  field,
  isRequired,
}: {
  name: string;
  field: Field;
  isRequired: boolean;
}): ReactNode {
  const label = field.title ?? name;
  if (field.type === "boolean")
    return (
      <label className="row">
        <input type="checkbox" name={name} /> {label}
      </label>
    );
  return (
    <label className="field">
      <span className="field-label">{label}</span>
      {field.enum ? (
        <select className="input" name={name} required={isRequired}>
          {field.enum.map((value, n) => (
            <option key={n}>{String(value)}</option>
          ))}
        </select>
      ) : (
        <input
          className="input"
          name={name}
          required={isRequired}
          type={isNumber(field) ? "number" : "text"}
          step="any"
        />
      )}
    </label>
  );
}

function isNumber(field: Field): boolean {
  return field.type === "number" || field.type === "integer";
}

/** The value of one field; undefined if it is empty. */
function valueOf(
  field: Field,
  typed: FormDataEntryValue | null,
  name: string,
): [string, unknown][] {
  if (field.type === "boolean") return [[name, typed !== null]];
  if (typed === null || typed === "") return [];
  return [
    [
      name,
      isNumber(field)
        ? Number(typed)
        : (field.enum?.find((value) => String(value) === typed) ?? typed),
    ],
  ];
}
