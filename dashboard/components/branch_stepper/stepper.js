// Shell of the branch stepper: state, keyboard, URL, ribbon, outline. Follows core.js and panes.js.

const INSTANCES = new WeakMap();
const MODES = ["logprob", "prob", "off"];
const HELP = [
  ["→ / j", "next step"], ["← / k", "previous step"], ["Home / g", "root"], ["End / G", "end of the branch"],
  ["x", "largest weight drop"], ["e", "first inadmissible policy action after the root"],
  ["n / p", "next / previous branch of this episode"], ["t", "token numbers: logprob, probability, off"],
  ["y", "copy the link to this step"], ["?", "this help"],
];

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const mount = parentElement.querySelector(".stepper");
  if (!mount || !data) return undefined;
  const previous = INSTANCES.get(mount);
  if (previous) previous.stop();
  const instance = start(mount, data, (id) => setTriggerValue("go", id));
  INSTANCES.set(mount, instance);
  return () => instance.stop();
}

function start(mount, data, openBranch) {
  const state = { k: readStep(data), mode: readMode(), help: false };
  const result = audit(data.branch);
  const limits = extent(data);
  const parts = skeleton(mount, data, result, { go, act });
  setTheme(mount);

  function go(k) {
    state.k = Math.max(limits.first, Math.min(limits.last, k));
    render();
    writeUrl(state);
  }

  function act(name) {
    const drop = worstDrop(data.branch);
    if (name === "next") go(state.k + 1);
    if (name === "previous") go(state.k - 1);
    if (name === "root") go(0);
    if (name === "end") go(limits.oracleEnd);
    if (name === "drop" && drop) go(drop.depth);
    if (name === "error") {
      const index = data.policy.steps.findIndex((s) => s.index >= data.branch.root_index && !s.is_admissible);
      if (index >= 0) go(index - data.branch.root_index);
    }
    if (name === "tokens") {
      state.mode = MODES[(MODES.indexOf(state.mode) + 1) % MODES.length];
      render();
      writeUrl(state);
    }
    if (name === "help") {
      state.help = !state.help;
      parts.help.hidden = !state.help;
    }
    if (name === "copy") copyLink(parts.status);
    if (name === "sibling+" || name === "sibling-") {
      const at = data.siblings.indexOf(data.id);
      const target = data.siblings[at + (name === "sibling+" ? 1 : -1)];
      if (target !== undefined) openBranch(target);
    }
  }

  function render() {
    const { k, mode } = state;
    const step = k >= 0 ? data.branch.steps[k] : undefined;
    parts.oracle.replaceChildren(k < 0 ? prefixPane(data, k, go) : oraclePane(data, result, k, mode, go));
    if (step) parts.oracle.firstChild.append(admissibleSection(data, k));
    parts.policy.replaceChildren(policyPane(data, k));
    if (step) parts.policy.firstChild.querySelector("header").after(probeBox(step, k));
    const own = data.policy.steps[data.branch.root_index + k];
    if (own && k !== 0) parts.policy.firstChild.append(ownAdmissible(own));
    select(parts, k, limits.first);
    parts.tokens.textContent = `tokens: ${mode}`;
    parts.position.textContent = k < 0 ? `step ${data.branch.root_index + k}, before the root` : `depth ${k}`;
    parts.live.textContent = announce(data, k);
  }

  const onKey = (event) => {
    const name = keyAction(event, mount);
    if (name === null) return;
    if (name === "close") {
      if (state.help) act("help");
      return;
    }
    event.preventDefault();
    act(name);
  };
  document.addEventListener("keydown", onKey);
  render();
  parts.selected?.scrollIntoView({ block: "nearest" });
  return { stop: () => document.removeEventListener("keydown", onKey) };
}

const KEYS = {
  ArrowRight: "next", j: "next", ArrowLeft: "previous", k: "previous", Home: "root", g: "root",
  End: "end", G: "end", x: "drop", e: "error", t: "tokens", n: "sibling+", p: "sibling-", y: "copy",
  "?": "help", Escape: "close",
};

/** The action of a key, or null where the key belongs to someone else (inputs, tabs, shortcuts). */
function keyAction(event, mount) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const active = document.activeElement;
  const host = mount.getRootNode().host;
  if (active && active !== document.body && active !== host && !mount.contains(active)) {
    if (active.closest("input, textarea, select, [contenteditable], [role=tablist], [role=combobox], canvas")) return null;
  }
  return KEYS[event.key] ?? null;
}

function readStep(data) {
  const k = Number.parseInt(new URL(window.location.href).searchParams.get("step") ?? "0", 10);
  const { first, last } = extent(data);
  return Number.isNaN(k) ? 0 : Math.max(first, Math.min(last, k));
}

function readMode() {
  const mode = new URL(window.location.href).searchParams.get("tok");
  return MODES.includes(mode) ? mode : MODES[0];
}

function writeUrl({ k, mode }) {
  const url = new URL(window.location.href);
  if (k === 0) url.searchParams.delete("step");
  else url.searchParams.set("step", String(k));
  if (mode === MODES[0]) url.searchParams.delete("tok");
  else url.searchParams.set("tok", mode);
  window.history.replaceState(window.history.state, "", url);
}

function copyLink(status) {
  const done = (text) => {
    status.textContent = text;
    window.setTimeout(() => { status.textContent = ""; }, 1500);
  };
  if (!navigator.clipboard) done("copy the address from the address bar");
  else navigator.clipboard.writeText(window.location.href).then(() => done("link copied"), () => done("the browser refused to copy"));
}

/** Light or dark from the page's own background, so that colours follow the theme. */
function setTheme(mount) {
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = getComputedStyle(mount).getPropertyValue("--st-background-color").trim() || "#fff";
  probe.fillRect(0, 0, 1, 1);
  const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
  mount.dataset.theme = 0.3 * r + 0.6 * g + 0.1 * b < 128 ? "dark" : "light";
}

function button(name, label, title, act) {
  const node = el("button", "tool", label);
  node.type = "button";
  node.title = title;
  node.dataset.action = name;
  node.onclick = () => act(name);
  return node;
}

function skeleton(mount, data, result, { go, act }) {
  const parts = { rows: new Map(), bars: new Map() };
  parts.status = el("span", "status");
  parts.position = el("span", "position");
  parts.tokens = button("tokens", "tokens", "t: logprob, probability, off", act);
  parts.live = el("div", "visually-hidden");
  parts.live.setAttribute("aria-live", "polite");
  parts.help = el("div", "help");
  parts.help.hidden = true;
  for (const [key, text] of HELP) parts.help.append(el("kbd", "", key), el("span", "", text));
  const tools = el("div", "toolbar",
    button("previous", "←", "previous step (←)", act), parts.position, button("next", "→", "next step (→)", act),
    button("root", "⤒ root", "root (Home)", act), button("end", "⤓ end", "end of the branch (End)", act),
    button("drop", "x worst drop", "largest weight drop (x)", act), parts.tokens,
    button("copy", "copy link", "copy the link to this step (y)", act), button("help", "? keys", "keyboard help (?)", act), parts.status);
  parts.oracle = el("div", "slot");
  parts.policy = el("div", "slot");
  const outline = buildOutline(data, parts, go);
  mount.replaceChildren(badges(data, result), buildRibbon(data, parts, go), tools, parts.help,
    el("div", "grid", outline, parts.oracle, parts.policy), parts.live);
  parts.outline = outline;
  return parts;
}

function badges(data, result) {
  const { branch, policy } = data;
  const row = el("div", "badges");
  const restored = branch.root_hash === branch.restored_hash;
  row.append(
    pill(branch.outcome === "won" ? "good" : "bad", `${branch.outcome === "won" ? "✓" : "✗"} ${OUTCOMES[branch.outcome] ?? branch.outcome}`, branch.reason),
    policy.steps.length ? pill(policy.is_won ? "good" : "bad", `${policy.is_won ? "✓" : "✗"} policy ${policyOutcome(policy)}`) : pill("plain", "policy episode not in the log"),
    pill(restored ? "good" : "bad", restored ? "✓ restore verified" : "✗ restore mismatch", `recorded ${branch.root_hash}\nrestored ${branch.restored_hash}`),
  );
  const auditPill = result.ok
    ? pill("good", "✓ weights audited", `all ${result.rows.length} weights recomputed in this page; largest gap ${result.gap.toExponential(1)}`)
    : pill("bad", `✗ weight gap ${fmt(result.gap, 4)} at depth ${result.depth}`, "the logged weight is not the product of the logged compatibilities");
  auditPill.dataset.audit = result.ok ? "ok" : "gap";
  row.append(auditPill, pill("plain", `${branch.weight_rule}, β = ${fmt(branch.beta, 2)}`, "weight rule"),
    pill("plain", `root: ${branch.root_rule}`), pill("plain", `oracle: ${branch.oracle}`),
    pill(branch.is_trained ? "plain" : "warn", branch.is_trained ? "trained on" : "not trained on"));
  return row;
}

function buildRibbon(data, parts, go) {
  const { branch, policy } = data;
  const { first, last, oracleEnd, policyEnd } = extent(data);
  const box = el("div", "ribbon");
  const depth = fmt(branch.effective_depth, 2);
  const drop = worstDrop(branch);
  const caption = el("div", "ribbon-caption", el("b", "", "Reachability"), el("span", "", `effective depth ${depth} of ${oracleEnd}`));
  if (drop) {
    const token = drop.token ? `, token “${visible(drop.token.text)}” ${fmt(drop.token.logprob)}` : "";
    const text = `largest drop at depth ${drop.depth}: ${fmtWeight(drop.before)} → ${fmtWeight(drop.after)}${token}`;
    const jump = el("button", "link", text);
    jump.type = "button";
    jump.onclick = () => go(drop.depth);
    caption.append(jump);
  }
  const bars = el("div", "bars");
  bars.style.gridTemplateColumns = `repeat(${last - first + 1}, minmax(3px, 1fr))`;
  for (let k = first; k <= last; k += 1) {
    const cell = el("div", `cell${k === 0 ? " root" : ""}${k < 0 ? " prefix" : ""}`);
    const upper = el("div", "upper");
    if (k >= 0 && k < oracleEnd) {
      const weight = num(branch.steps[k].weight);
      const fill = el("div", Number.isFinite(weight) ? "fill" : "fill missing");
      fill.style.height = `${Number.isFinite(weight) ? Math.round(Math.max(2, 60 * Math.min(1, weight))) : 60}px`;
      upper.append(fill, el("span", "value", fmtWeight(weight)));
      cell.title = `depth ${k}: w = ${fmt(weight, 3)}, ${branch.steps[k].action}`;
    } else if (k === oracleEnd) upper.append(el("span", `flag ${branch.outcome === "won" ? "won" : ""}`, branch.outcome === "won" ? "✓" : "■"));
    const lower = el("div", "lower");
    const own = policy.steps[branch.root_index + k];
    if (own) lower.append(el("span", own.is_admissible ? "dot" : "dot bad", own.is_admissible ? "•" : "×"));
    else if (k === policyEnd && policy.steps.length) lower.append(el("span", policy.is_won ? "dot won" : "dot bad", policy.is_won ? "✓" : "✗"));
    cell.append(upper, lower);
    cell.onclick = () => go(k);
    bars.append(cell);
    parts.bars.set(k, cell);
  }
  const lanes = el("div", "lanes", el("span", "oracle-text", "oracle wₖ"), el("span", "policy-text", "policy"));
  box.append(caption, el("div", "ribbon-body", lanes, bars));
  return box;
}

function buildOutline(data, parts, go) {
  const { branch, policy } = data;
  const { first, last, oracleEnd, policyEnd } = extent(data);
  const list = el("div", "outline");
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Steps of the policy's episode and of the oracle branch");
  list.tabIndex = 0;
  list.append(el("div", "row head", el("span", "", "step"), el("span", "oracle-text", "oracle"), el("span", "n", "wₖ"), el("span", "policy-text", "policy")));
  for (let k = first; k <= last; k += 1) {
    const own = policy.steps[branch.root_index + k];
    const logged = k >= 0 ? branch.steps[k]?.policy_action : null;
    const ownText = own ? own.action : !policy.steps.length && logged ? logged : k === policyEnd && policy.steps.length ? `${policy.is_won ? "✓" : "✗"} ${policyOutcome(policy)}` : "";
    const step = k >= 0 ? branch.steps[k] : undefined;
    const row = el("div", `row${k < 0 ? " shared" : ""}${k === 0 ? " root" : ""}`);
    row.id = `step-${k}`;
    row.setAttribute("role", "option");
    row.append(el("span", "t", k === 0 ? `◆ ${branch.root_index}` : String(branch.root_index + k)));
    if (k < 0) row.append(el("span", "cell-action", ownText));
    else {
      const oracleText = step ? step.action : k === oracleEnd ? OUTCOMES[branch.outcome] ?? branch.outcome : "";
      const differs = step && own && step.action !== own.action;
      row.append(el("span", step ? "cell-action" : "cell-action end", oracleText),
        step ? miniWeight(step.weight) : el("span", "n"),
        el("span", `cell-action${own ? "" : " end"}${differs ? " differs" : ""}${own && !own.is_admissible ? " bad" : ""}`, ownText));
    }
    row.title = [step?.action, ownText].filter(Boolean).join("  |  policy: ");
    row.onclick = () => go(k);
    list.append(row);
    parts.rows.set(k, row);
  }
  return list;
}

function miniWeight(weight) {
  const node = el("span", "n mini", fmtWeight(weight));
  const x = num(weight);
  node.style.setProperty("--fill", `${Math.round(100 * Math.max(0, Math.min(1, Number.isFinite(x) ? x : 0)))}%`);
  return node;
}

function select(parts, k) {
  for (const map of [parts.rows, parts.bars]) {
    const old = [...map.values()].find((node) => node.classList.contains("selected"));
    old?.classList.remove("selected");
    map.get(k)?.classList.add("selected");
  }
  const row = parts.rows.get(k);
  for (const node of parts.rows.values()) node.setAttribute("aria-selected", String(node === row));
  if (!row) return;
  parts.selected = row;
  parts.outline.setAttribute("aria-activedescendant", row.id);
  const { offsetTop, offsetHeight } = row;
  const { scrollTop, clientHeight } = parts.outline;
  if (offsetTop < scrollTop + 30) parts.outline.scrollTop = offsetTop - 40;
  else if (offsetTop + offsetHeight > scrollTop + clientHeight) parts.outline.scrollTop = offsetTop + offsetHeight - clientHeight + 8;
}

function prefixPane(data, k, go) {
  const jump = el("button", "tool", "◆ go to the root");
  jump.type = "button";
  jump.onclick = () => go(0);
  const text = `The branch starts at step ${data.branch.root_index}. Up to there the policy acts alone; the oracle's copy of the environment is restored by replaying these ${data.branch.root_index} actions.`;
  return el("div", "pane oracle quiet", el("header", "", el("h3", "", "Before the root")), el("p", "muted", text), jump);
}

function admissibleSection(data, k) {
  const { branch, policy } = data;
  const step = branch.steps[k];
  const own = policy.steps[branch.root_index + k];
  const marks = [{ kind: "oracle", label: "oracle", action: step.action }];
  if (own) marks.push({ kind: "policy", label: k === 0 ? "policy" : "policy (own state)", action: own.action });
  if (step.probe_action) marks.push({ kind: "probe", label: "greedy probe", action: step.probe_action });
  return section("Admissible actions", `${step.admissible.length}`, admissibleList(step.admissible, marks));
}

function ownAdmissible(own) {
  const details = el("details", "section", el("summary", "", `Admissible in the policy's state (${own.admissible.length})`));
  details.append(admissibleList(own.admissible, [{ kind: "policy", label: "policy", action: own.action }]));
  return details;
}

function announce(data, k) {
  const step = k >= 0 ? data.branch.steps[k] : undefined;
  const own = data.policy.steps[data.branch.root_index + k];
  const oracle = step ? `depth ${k}, weight ${fmt(step.weight)}, oracle: ${step.action}. ` : "";
  return `${oracle}policy: ${own ? own.action : "episode over"}`;
}
