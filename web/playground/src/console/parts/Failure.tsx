// A failed query. It never looks like an empty answer.
import type { ReactNode } from "react";

import { Button } from "../../ui/Button.js";
import { Icon } from "../../ui/Icon.js";
import { Refused } from "../api/api.js";

export function Failure({ error, onAgain }: { error: unknown; onAgain: () => void }): ReactNode {
  const message = error instanceof Error ? error.message : String(error);
  return (
    <div className="card notice tone-danger" role="alert">
      <Icon name="alert" />
      <div>
        <strong>
          {error instanceof Refused
            ? `Not answered · ${error.code}`
            : "The gateway cannot be reached"}
        </strong>
        <p>{message}</p>
        {error instanceof Refused && error.requestId && (
          <p className="muted">request id {error.requestId}</p>
        )}
      </div>
      <Button size="small" onClick={onAgain}>
        Ask again
      </Button>
    </div>
  );
}
