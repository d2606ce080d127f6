// What a run asks a person, as a form made of its JSON Schema. What the schema leaves open is asked for as text.
import type { ResumeEntry } from "capstan";
import { type FormEvent, type ReactNode, useState } from "react";

import { isObject } from "../agui/transcript.js";
import { raw } from "../raw.js";
import { Button } from "../ui/Button.js";

export type OnAnswer = (resume: readonly ResumeEntry[], said: string) => void;

interface Field {
  name: string;
  type: unknown;
  label: string;
  choices: unknown[] | undefined;
  isRequired: boolean;
}

/** Whether this is a question that can be answered; anything else is shown raw. */
export function isInterrupt({ type, data }: Record<string, unknown>): boolean {
  return typeof type === "string" && type.toUpperCase() === "INTERRUPT" && isObject(data) && typeof data["id"] === "string";
}

export function Interrupt({ data, onAnswer }: { data: unknown; onAnswer: OnAnswer }): ReactNode {
  const [isDone, setDone] = useState(false);
  const asked = isObject(data) ? data : {};
  const fields = fieldsOf(asked["responseSchema"]);
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
      {choices ? (
        <select className="input" name={name} required={isRequired}>{choices.map((choice, n) => <option key={n} value={n}>{textOf(choice) ?? raw(choice)}</option>)}</select>
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
