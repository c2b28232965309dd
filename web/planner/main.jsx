import { render } from "preact";
import { App } from "./app.jsx";
import "./planner.css";

render(<App />, document.getElementById("app"));
