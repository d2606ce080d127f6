// An effect returns nothing, or a function that is written there.
//
// React calls whatever an effect returned when it cleans up. Types do not help: by them
// `scrollIntoView` returns nothing, but today's browsers return a promise, and a page whose
// effect hands it on goes white. So the rule looks at the shape alone.

const EFFECT = /^use\w*Effect$/;
const FUNCTIONS = ["ArrowFunctionExpression", "FunctionExpression"];

/** @type {import("eslint").Rule.RuleModule} */
export default {
  meta: {
    type: "problem",
    schema: [],
    messages: {
      inline:
        "Write the effect as a function in place, without async: only there is its result seen.",
      braces: "Put braces around it: React takes what an effect returns for its clean-up.",
      result:
        "An effect returns nothing, or a function written in place: React calls it to clean up.",
    },
  },
  create(context) {
    return {
      CallExpression({ callee, arguments: [effect] }) {
        const name = callee.type === "MemberExpression" ? callee.property.name : callee.name;
        if (!EFFECT.test(name ?? "")) return;
        if (!isFunction(effect) || effect.async)
          return context.report({ node: effect ?? callee, messageId: "inline" });
        if (effect.body.type !== "BlockStatement") {
          if (!isFunction(effect.body)) context.report({ node: effect.body, messageId: "braces" });
          return;
        }
        for (const node of returnsOf(effect.body, context.sourceCode.visitorKeys)) {
          if (node.argument && !isFunction(node.argument))
            context.report({ node, messageId: "result" });
        }
      },
    };
  },
};

function isFunction(node) {
  return FUNCTIONS.includes(node?.type);
}

/** The return statements of a body, without those of functions inside it. */
function* returnsOf(node, keys) {
  if (node.type === "ReturnStatement") yield node;
  if (isFunction(node) || node.type === "FunctionDeclaration") return;
  for (const child of (keys[node.type] ?? []).flatMap((key) => node[key] ?? []))
    yield* returnsOf(child, keys);
}
