import "../styles.css";
import "./console.css";

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { Boundary } from "../show/Boundary.js";
import { Console } from "./Console.js";

/** The last resort for an error outside of all views. */
const broken = (
  <p className="broken" role="alert">
    The page broke. <a href="/console">Load it again</a>; nothing at the gateway was changed.
  </p>
);

const root = document.getElementById("root");
if (root)
  createRoot(root).render(
    <StrictMode>
      <Boundary of={root} instead={broken}>
        <Console />
      </Boundary>
    </StrictMode>,
  );
