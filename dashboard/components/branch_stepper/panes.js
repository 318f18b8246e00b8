// DOM builders of the branch stepper. Text from models and environments enters only as textContent.

function el(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  for (const child of children) {
    if (child === null || child === undefined) continue;
    node.append(typeof child === "object" ? child : document.createTextNode(String(child)));
  }
  return node;
}

function pill(kind, text, title) {
  const node = el("span", `pill ${kind}`, text);
  if (title) node.title = title;
  return node;
}

function section(title, hint, ...children) {
  const head = el("div", "section-head", el("h4", "", title), hint ? el("span", "hint", hint) : null);
  return el("section", "section", head, ...children);
}

/** A block of text; long text is cut with a button that shows the rest. */
function textBlock(text, className, limit = 1600) {
  const body = el("div", `text ${className}`);
  if (text.length <= limit) {
    body.textContent = text;
    return body;
  }
  const span = el("span", "", `${text.slice(0, limit)}…`);
  const more = el("button", "link", `show all (${(text.length / 1000).toFixed(1)} kB)`);
  more.type = "button";
  more.onclick = () => {
    span.textContent = text;
    more.remove();
  };
  body.append(span, more);
  return body;
}

/** Tokens with their numbers; `mode` is "logprob", "prob" or "off". */
function tokenStrip(step, mode) {
  const strip = el("div", "tokens");
  strip.setAttribute("role", "list");
  const draw = (from, to) => {
    strip.replaceChildren();
    const more = (count, where) => {
      const button = el("button", "link", `${count} ${where}`);
      button.type = "button";
      button.onclick = () => draw(0, step.tokens.length);
      return button;
    };
    if (from > 0) strip.append(more(from, "tokens before…"));
    for (let i = from; i < to; i += 1) strip.append(tokenChip(step, i, mode));
    if (to < step.tokens.length) strip.append(more(step.tokens.length - to, "tokens after…"));
  };
  const { from, to } = tokenWindow(step.scored, 90, 12);
  draw(from, to);
  return strip;
}

function tokenChip(step, index, mode) {
  const logprob = num(step.logprobs[index]);
  const chip = el("span", step.scored[index] ? "token scored" : "token");
  chip.setAttribute("role", "listitem");
  chip.append(el("span", "token-text", visible(step.tokens[index] ?? "?")));
  const prob = Math.exp(logprob);
  if (mode !== "off") {
    const number = mode === "prob" ? `${fmt(100 * prob, prob < 0.1 ? 1 : 0)}%` : fmtLogprob(logprob);
    chip.append(el("span", "token-number", number));
    chip.style.setProperty("--heat", `${Math.round(62 * tokenHeat(logprob))}%`);
    if (step.scored[index] && logprob < -2) chip.classList.add("unlikely");
  }
  const role = step.scored[index] ? "scored" : "not scored";
  const label = `${step.tokens[index]}: logprob ${fmt(logprob, 3)}, probability ${fmt(prob, 3)}, ${role}`;
  chip.title = label;
  chip.setAttribute("aria-label", label);
  return chip;
}

/** Admissible actions with the oracle's, the policy's and the probe's marked. */
function admissibleList(actions, marks) {
  const first = el("ul", "admissible first");
  const rest = el("ul", "admissible");
  for (const action of actions) {
    const here = marks.filter((mark) => mark.action === action);
    const item = el("li", here.length ? "marked" : "", action);
    for (const mark of here) item.append(el("span", `mark ${mark.kind}`, mark.label));
    (here.length ? first : rest).append(item);
  }
  for (const mark of marks.filter(({ action }) => !actions.includes(action))) {
    const item = el("li", "marked outside", mark.action, el("span", `mark ${mark.kind}`, mark.label));
    item.append(el("span", "hint", " not admissible here"));
    first.append(item);
  }
  return el("div", "", first, rest);
}

/** How w_k came about: one row per preceding action. */
function weightTable(branch, result, k, go) {
  const recomputed = result.rows[k].weight;
  const logged = num(branch.steps[k].weight);
  const same = Math.abs(recomputed - logged) <= TOLERANCE;
  const verdict = el(
    "div",
    same ? "verdict ok" : "verdict bad",
    same
      ? `✓ recomputed from the logged logprobs: ${fmt(recomputed, 4)}`
      : `✗ logged ${fmt(logged, 4)}, recomputed ${fmt(recomputed, 4)}, gap ${fmt(recomputed - logged, 4)}`,
  );
  if (k === 0) {
    return el("div", "", el("p", "muted", "w₀ = 1: no oracle action precedes the root."), verdict);
  }
  const table = el("table", "weights");
  const ell = RULE_LABELS[branch.weight_rule] ?? RULE_LABELS.lennorm;
  const head = el("tr", "", ...["j", "preceding oracle action", ell, `cⱼ = e^(${branch.beta}·ℓⱼ)`, "product"].map((t) => el("th", "", t)));
  table.append(el("thead", "", head));
  const body = el("tbody");
  for (let j = 0; j < k; j += 1) {
    const row = result.rows[j];
    const after = result.rows[j + 1].weight;
    const bar = el("span", "bar");
    bar.style.width = `${Math.round(46 * Math.max(0, Math.min(1, after)))}px`;
    const tr = el("tr", row.c < 0.6 ? "low" : "", el("td", "", j), el("td", "action", branch.steps[j].action));
    tr.append(el("td", "n", fmt(row.ell, 3)), el("td", "n", fmt(row.c, 3)), el("td", "n product", bar, fmt(after, 3)));
    tr.onclick = () => go(j);
    body.append(tr);
  }
  table.append(body);
  const box = el("div", "scroll", table);
  return el("div", "", box, verdict);
}

function oraclePane(data, result, k, mode, go) {
  const { branch } = data;
  const pane = el("div", "pane oracle");
  const step = branch.steps[k];
  const head = el("header", "", el("h3", "", "Oracle"));
  pane.append(head);
  if (!step) {
    const { oracleEnd } = extent(data);
    const won = branch.outcome === "won";
    head.append(el("span", "where", k === oracleEnd ? `end, after ${oracleEnd} steps` : `ended at depth ${oracleEnd}`));
    pane.append(el("p", won ? "outcome won" : "outcome", `${won ? "✓" : "■"} ${OUTCOMES[branch.outcome] ?? branch.outcome}`));
    if (branch.reason) pane.append(textBlock(branch.reason, "observation"));
    if (branch.final_observation) pane.append(section("Final observation", "", textBlock(branch.final_observation, "observation")));
    return pane;
  }
  head.append(el("span", "where", `depth ${k} of ${branch.steps.length - 1}`), weightPill(step.weight, k));
  pane.append(section("Observation", "", textBlock(step.observation, "observation")));
  const action = section("Oracle action", step.reward ? `reward ${fmt(step.reward, 1)}` : "", el("div", "action-line", step.action));
  pane.append(action);
  const scored = step.scored.filter(Boolean).length;
  const numbers = `mean ${fmt(step.action_logprob_mean, 3)} · sum ${fmt(step.action_logprob_sum, 2)} over ${scored} scored of ${step.tokens.length} tokens`;
  const weak = weakestToken(step);
  const tokens = section(mode === "prob" ? "Token probabilities under the behavior policy" : "Token logprobs under the behavior policy", "", tokenStrip(step, mode));
  tokens.append(el("p", "muted", numbers, weak ? ` · least likely “${visible(weak.text)}” ${fmt(weak.logprob)}` : ""));
  pane.append(tokens);
  pane.append(section(`How w${subscript(k)} came about`, k ? `w${subscript(k)} = ∏ cⱼ, j < ${k}` : "", weightTable(branch, result, k, go)));
  return pane;
}

function subscript(k) {
  return String(k).replace(/\d/g, (d) => "₀₁₂₃₄₅₆₇₈₉"[d]);
}

function weightPill(weight, k) {
  const x = num(weight);
  const node = pill("weight", `w${subscript(k)} = ${fmtWeight(x)}`, "reachability weight: how much of this step's supervision gets through");
  node.style.setProperty("--fill", `${Math.round(100 * Math.max(0, Math.min(1, Number.isFinite(x) ? x : 0)))}%`);
  if (!Number.isFinite(x)) node.classList.add("missing");
  return node;
}

function policyPane(data, k) {
  const { branch, policy } = data;
  const pane = el("div", "pane policy");
  const index = branch.root_index + k;
  const step = policy.steps[index];
  const head = el("header", "", el("h3", "", "Policy"));
  pane.append(head);
  if (!step) {
    const ended = policy.steps.length;
    head.append(el("span", "where", ended ? `its episode ended after step ${ended - 1}` : "its episode is not in the log"));
    if (ended) {
      const outcome = policyOutcome(policy);
      pane.append(el("p", policy.is_won ? "outcome won" : "outcome lost", `${policy.is_won ? "✓" : "✗"} policy: ${outcome}`));
      pane.append(section("Final observation", "", textBlock(policy.final_observation, "observation")));
    }
    return pane;
  }
  const same = k <= 0 ? "" : "the policy's own state";
  head.append(el("span", "where", `step ${index} of ${policy.steps.length - 1}`), k === 0 ? pill("plain", "same state as the oracle") : el("span", "hint", same));
  pane.append(section("Observation", "", textBlock(step.observation, "observation")));
  const action = section("Policy action", "", el("div", "action-line", step.action || "(no action found)"));
  const flags = el("div", "flags");
  flags.append(step.is_valid ? pill("good", "✓ format") : pill("bad", "✗ wrong format"));
  flags.append(step.is_admissible ? pill("good", "✓ admissible") : pill("bad", "✗ not admissible", "the environment answers “Nothing happens.”"));
  if (step.reward) flags.append(pill("plain", `reward ${fmt(step.reward, 1)}`));
  action.append(flags);
  pane.append(action);
  const logprobs = step.logprobs.map(num);
  const mean = logprobs.length ? logprobs.reduce((a, b) => a + b, 0) / logprobs.length : NaN;
  const response = section("Sampled answer", `${logprobs.length} tokens · mean logprob ${fmt(mean, 3)}`, textBlock(step.response, "response", 800));
  pane.append(response);
  return pane;
}

/** What the policy would do greedily in the oracle's state. */
function probeBox(step, k) {
  if (!step) return null;
  const box = el("section", "probe-box");
  if (step.probe_action === null || step.probe_action === undefined) {
    box.append(el("p", "muted", "Greedy probe not logged (sero.probe = false)."));
    return box;
  }
  const agrees = step.probe_action === step.action;
  box.append(
    el("span", "probe-label", k === 0 ? "Greedy here, the policy would" : "In the oracle's state the policy would"),
    el("span", "action-line small", step.probe_action),
    agrees ? pill("good", "= oracle") : pill("warn", "≠ oracle"),
  );
  return box;
}
