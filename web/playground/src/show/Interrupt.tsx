// What a run asks a person, as a form made of its JSON Schema. What the schema leaves open is asked for as text.
import type { ResumeEntry } from "capstan";
import { type FormEvent, type ReactNode, useState } from "react";

import { isObject, isText } from "../json.js";
import { Button } from "../ui/Button.js";

export type OnAnswer = (resume: readonly ResumeEntry[], said: string) => void;

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

/** What an event asks; nothing if it is no interrupt, or if its members do not fit. */
export function askedOf({ type, data }: Record<string, unknown>): Asked | undefined {
  if (!isText(type) || type.toUpperCase() !== "INTERRUPT" || !isObject(data)) return undefined;
  const { id, reason, message, responseSchema: schema } = data;
  const fits = isText(id) && isText(reason) && isOptional(message, isText) && isOptional(schema, isSchema);
  return fits ? (data as unknown as Asked) : undefined;
}

function isSchema(schema: unknown): boolean {
  if (!isObject(schema)) return false;
  const { properties, required } = schema;
  const areFields = (all: unknown) => isObject(all) && Object.values(all).every(isField);
  return isOptional(properties, areFields) && isOptional(required, (names) => Array.isArray(names) && names.every(isText));
}

function isField(field: unknown): boolean {
  if (!isObject(field)) return false;
  const isChoice = (value: unknown) => value === null || ["string", "number", "boolean"].includes(typeof value);
  return isOptional(field["type"], isText) && isOptional(field["title"], isText) && isOptional(field["enum"], (all) => Array.isArray(all) && all.every(isChoice));
}

function isOptional(value: unknown, check: (value: unknown) => boolean): boolean {
  return value === undefined || check(value);
}

export function Interrupt({ asked, onAnswer }: { asked: Asked; onAnswer: OnAnswer }): ReactNode {
  const [isDone, setDone] = useState(false);
  const fields = Object.entries(asked.responseSchema?.properties ?? { answer: {} });
  const settle = (status: ResumeEntry["status"], payload?: unknown) => {
    setDone(true);
    const entry = { interruptId: String(asked["id"]), status, ...(payload === undefined ? {} : { payload }) };
    onAnswer([entry], status === "resolved" ? JSON.stringify(payload) : "(no answer)");
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    settle("resolved", Object.fromEntries(fields.flatMap((field) => valueOf(field, form.get(field.name)))));
  };
  return (
    <form className="card interrupt" aria-label="Question" onSubmit={submit}>
      <strong>{textOf(asked["message"]) ?? textOf(asked["reason"]) ?? "?"}</strong>
      <fieldset disabled={isDone}>
        {fields.map((field) => <Input key={field.name} field={field} />)}
        <div className="row">
          <Button type="submit" look="primary" size="small">Answer</Button>
          <Button size="small" onClick={() => settle("cancelled")}>Rather not</Button>
        </div>
      </fieldset>
    </form>
  );
}

/** The fields of a schema; without any, one for whatever there is to say. */
function fieldsOf(schema: unknown): Field[] {
  const properties = isObject(schema) && isObject(schema["properties"]) ? schema["properties"] : { answer: {} };
  const required = isObject(schema) && Array.isArray(schema["required"]) ? schema["required"] : [];
  return Object.entries(properties).map(([name, property]) => {
    const { type, title, enum: choices } = isObject(property) ? property : {};
    return { name, type, label: textOf(title) ?? name, choices: Array.isArray(choices) ? choices : undefined, isRequired: required.includes(name) };
  });
}

function Input({ field: { name, type, label, choices, isRequired } }: { field: Field }): ReactNode {
  if (type === "boolean") return <label className="row"><input type="checkbox" name={name} /> {label}</label>;
  return (
    <label className="field">
      <span className="field-label">{label}</span>
      {field.enum ? (
        <select className="input" name={name} required={isRequired}>{field.enum.map((value, n) => <option key={n}>{String(value)}</option>)}</select>
      ) : (
        <input className="input" name={name} required={isRequired} type={isNumber(type) ? "number" : "text"} step="any" />
      )}
    </label>
  );
}

/** The answer of one field; none if it was left empty. */
function valueOf({ name, type, choices }: Field, typed: FormDataEntryValue | null): [string, unknown][] {
  if (type === "boolean") return [[name, typed !== null]];
  if (typed === null || typed === "") return [];
  if (choices) return [[name, choices[Number(typed)]]];
  return [[name, isNumber(type) ? Number(typed) : typed]];
}

function isNumber(type: unknown): boolean {
  return type === "number" || type === "integer";
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
