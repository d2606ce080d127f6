// The body of the request. Headers are not stored.
import { type ReactNode, useMemo, useState } from "react";

import { raw } from "../../raw.js";
import { Switch } from "../../ui/Switch.js";

export function RequestBody({ body }: { body: string }): ReactNode {
  const [isPretty, setPretty] = useState(true);
  const pretty = useMemo(() => prettyOf(body), [body]);
  return (
    <div>
      <div className="row">
        <Switch label="Indented" isOn={isPretty} onChange={setPretty} />
        <span className="muted">Headers are not stored, but for X-Request-ID and trace id.</span>
      </div>
      <pre className="frame-whole content" tabIndex={0} aria-label="Body of the request">
        {isPretty ? pretty : raw(body)}
      </pre>
    </div>
  );
}

function prettyOf(body: string): string {
  try {
    return raw(JSON.stringify(JSON.parse(body), null, 2));
  } catch {
    return raw(body);
  }
}
