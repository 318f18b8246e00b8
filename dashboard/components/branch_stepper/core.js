// Pure functions of the branch stepper: no DOM, no globals. Concatenated before panes.js.
//
// Positions: `k` counts from the root, so k = 0 is the root, k < 0 is the policy's own prefix and
// k >= 0 is depth k of the oracle branch beside step root_index + k of the policy's episode.

const TOLERANCE = 1e-4;

/** The API writes null where the stored value is not finite (JSON has no word for it). */
function num(value) {
  if (value === null) return NaN;
  return value;
}

function fmt(value, digits = 2) {
  const x = num(value);
  if (x === undefined) return "–";
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (x !== 0 && Math.abs(x) < 0.5 * 10 ** -digits) return x.toExponential(1).replace("-", "−");
  return x.toFixed(digits).replace("-", "−");
}

/** Two decimals whatever the size: a column of numbers that are compared with each other. */
function fmtLogprob(value) {
  const x = num(value);
  return Number.isFinite(x) ? x.toFixed(2).replace(/^-/, x > -0.005 ? "" : "−") : fmt(x);
}

/** Weights span orders of magnitude: two decimals from 0.1 up, three below, then powers of ten. */
function fmtWeight(value) {
  return fmt(value, Math.abs(num(value)) >= 0.0995 ? 2 : 3);
}

/** What each weight rule calls log c at beta = 1 (docs/methods.md, Weights). */
const RULE_LABELS = {
  lennorm: "ℓⱼ (mean)",
  seqprob: "ℓⱼ (sum)",
  relgreedy: "ℓⱼ − ℓ greedy",
  sampled: "log share of samples",
  admissible: "log softmax",
};

/** log c_k of a step at beta = 1 under the branch's rule; NaN where an ingredient is missing. */
function ruleLogprob(step, branch) {
  const scored = step.logprobs.map(num).filter((_, i) => step.scored[i]);
  const sum = scored.reduce((a, b) => a + b, 0);
  if (scored.length === 0) return NaN;
  switch (branch.weight_rule) {
    case "seqprob":
      return sum;
    case "relgreedy":
      return Math.min(0, sum / scored.length - num(step.greedy_logprob_mean));
    case "sampled":
      return Math.log((num(step.num_matches) + 0.5) / (num(step.num_samples) + 1));
    case "admissible": {
      const values = (step.admissible_logprobs ?? []).map((value) => num(value) / branch.tau);
      const top = Math.max(...values);
      const total = values.reduce((a, b) => a + Math.exp(b - top), 0);
      return values[step.admissible_index] - top - Math.log(total);
    }
    default:
      return sum / scored.length;
  }
}

/** Recompute every ell, c and w of a branch from its logged log-probabilities. */
function recompute(branch) {
  const rows = [];
  let product = 1;
  for (const step of branch.steps) {
    const ell = ruleLogprob(step, branch);
    const c = branch.beta === 0 ? 1 : Math.exp(branch.beta * ell);
    rows.push({ ell, c, weight: product });
    product *= c;
  }
  return rows;
}

/** Compare logged weights with recomputed ones: the largest gap and where it is. */
function audit(branch) {
  const rows = recompute(branch);
  let gap = 0;
  let depth = null;
  rows.forEach((row, k) => {
    const logged = num(branch.steps[k].weight);
    const difference = Math.abs(row.weight - logged);
    if (Number.isNaN(gap)) return;
    if (!(difference <= gap)) {
      gap = difference;
      depth = k;
    }
  });
  return { rows, gap, depth, ok: gap <= TOLERANCE };
}

/** The step whose action lowered the weight most: {depth, before, after, token} or null. */
function worstDrop(branch) {
  let best = null;
  for (let k = 0; k + 1 < branch.steps.length; k += 1) {
    const before = num(branch.steps[k].weight);
    const after = num(branch.steps[k + 1].weight);
    if (best === null || before - after > best.before - best.after) {
      best = { depth: k, before, after };
    }
  }
  if (best === null || !(best.before > best.after)) return null;
  return { ...best, token: weakestToken(branch.steps[best.depth]) };
}

/** The scored token with the lowest log-probability: {text, logprob, index} or null. */
function weakestToken(step) {
  let best = null;
  step.logprobs.forEach((raw, index) => {
    const logprob = num(raw);
    if (step.scored[index] && (best === null || logprob < best.logprob)) {
      best = { text: step.tokens[index] ?? "?", logprob, index };
    }
  });
  return best;
}

/** Positions that exist: first prefix step … the later of the two ends (both ends are positions). */
function extent(data) {
  const policyEnd = data.policy.steps.length - data.branch.root_index;
  return {
    first: Math.min(0, data.policy.steps.length ? -data.branch.root_index : 0),
    oracleEnd: data.branch.steps.length,
    policyEnd,
    last: Math.max(data.branch.steps.length, policyEnd, 0),
  };
}

/** Which tokens to show of a long answer: all, or a window around the scored span. */
function tokenWindow(scored, limit, margin) {
  if (scored.length <= limit) return { from: 0, to: scored.length };
  const first = scored.indexOf(true);
  const last = scored.lastIndexOf(true);
  if (first < 0) return { from: 0, to: limit };
  return { from: Math.max(0, first - margin), to: Math.min(scored.length, last + 1 + margin) };
}

/** 0 for certain tokens … 1 for logprob <= -6 nats; square root, so that small losses show. */
function tokenHeat(logprob) {
  const x = num(logprob);
  if (!Number.isFinite(x)) return 1;
  return Math.min(1, Math.sqrt(Math.max(0, -x) / 6));
}

function visible(text) {
  return text.replace(/ /g, "·").replace(/\n/g, "⏎").replace(/\t/g, "⇥") || "∅";
}

const OUTCOMES = {
  won: "oracle won",
  horizon: "cut at the horizon",
  dead_end: "dead end",
  budget: "step budget used up",
  oracle_error: "oracle error",
  restore_mismatch: "restore mismatch",
};

function policyOutcome(policy) {
  if (policy.is_won) return "won";
  return policy.is_truncated ? "cut at the step limit" : "lost";
}
