import "sonner/dist/styles.css";
import "./styles.css";

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { App } from "./App.js";
import { loadMarkdown } from "./markdown/Markdown.js";
import { Boundary } from "./show/Boundary.js";

/** The last resort for an error outside of all answers. */
const broken = (
  <p className="broken" role="alert">
    The page broke. <a href="/">Load it again</a>; runs continue at the gateway.
  </p>
);

// Loaded at once, because the first answer needs it.
void loadMarkdown();

const root = document.getElementById("root");
if (root)
  createRoot(root).render(
    <StrictMode>
      <Boundary of={root} instead={broken}>
        <App />
      </Boundary>
    </StrictMode>,
  );
