import "sonner/dist/styles.css";
import "./styles.css";

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { App } from "./App.js";
import { loadMarkdown } from "./markdown/Markdown.js";
import { Boundary } from "./show/Boundary.js";

/** The last resort: what broke is outside of every answer. */
const broken = (
  <p className="broken" role="alert">
    The page broke. <a href="/">Load it again</a>; runs go on at the gateway meanwhile.
  </p>
);

// At once: an answer will need it.
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
