// The rule bites: the line that turned the page white, and every other way to hand something on.
import test from "node:test";

import parser from "@typescript-eslint/parser";
import { RuleTester } from "eslint";

import rule from "./effect-body.js";

RuleTester.describe = (_, body) => body();
RuleTester.it = test;
const languageOptions = { parser, parserOptions: { ecmaFeatures: { jsx: true } } };

new RuleTester({ languageOptions }).run("effect-body", rule, {
  valid: [
    "useEffect(() => { end.current?.scrollIntoView(); }, [last]);",
    "useEffect(() => () => left.current?.abort(), []);",
    "useEffect(() => { const timer = start(); return () => clearInterval(timer); }, []);",
    "useEffect(function () { if (!isOpen) return; dialog.show(); });",
    "useEffect(() => { items.map((item) => { return item.show(); }); " +
      "function load() { return fetch(url); } }, []);",
    "const onClick = useEffectEvent(() => end.scrollIntoView());",
  ],
  invalid: [
    ["useEffect(() => end.current?.scrollIntoView({ block: 'nearest' }), [last]);", "braces"],
    ["useEffect(() => setAsking(complaint !== null), [complaint]);", "braces"],
    ["React.useLayoutEffect(() => scrollTo(0, 0));", "braces"],
    ["useInsertionEffect(() => void 0);", "braces"],
    ["useEffect(() => { if (isOpen) { return end.scrollIntoView(); } }, []);", "result"],
    ["useEffect(() => { const done = end.scrollTo(0, 0); return done; }, []);", "result"],
    ["useEffect(() => { try { return unsubscribe; } finally { stop(); } }, []);", "result"],
    ["useEffect(async () => { await load(); }, []);", "inline"],
    ["useEffect(load, []);", "inline"],
  ].map(([code, messageId]) => ({ code, errors: [{ messageId }] })),
});
