// Which samples a filter selects, and what is counted of them. No drawing here.

// A filter: condition; run (-1: any run); label, outcome (-1: any); attack ("": any);
// radius (null: any, NaN: never broken); other (-2: no matter, -1: any run disagrees with
// another, else the run that must disagree with `run`).
const ANY = { run: -1, label: -1, outcome: -1, attack: "", radius: null, other: -2 };

function selectSamples(table, filter) {
  const { condition, run, label, outcome, attack, radius, other } = { ...ANY, ...filter };
  const all = table.runs(condition), runs = run < 0 ? all : all.filter(one => one === run);
  const records = new Map(all.map(one => [one, table.record(one, condition)]));
  const { labels, size } = table.sets[table.set(condition)];
  const first = new Map(radius === null ? [] : runs.map(one => [one, table.firstRadius(one, condition)]));
  const right = (one, i) => isCorrect(records.get(one).outcomes[i]);
  const tested = (one, i) => records.get(one).outcomes[i] !== NOT_TESTED;
  const fits = (one, i) => {
    const record = records.get(one);
    if (!tested(one, i) || (outcome >= 0 && record.outcomes[i] !== outcome)) return false;
    if (attack && record.attacks[record.attack[i]] !== attack) return false;
    if (radius === null) return true;
    const at = first.get(one)[i];
    return isNaN(radius) ? isNaN(at) && record.outcomes[i] !== MISCLASSIFIED : at === radius;
  };
  const disagree = (one, i) => {
    const against = other === -1 ? all : all.filter(two => two === other);
    return against.some(two => tested(two, i) && right(two, i) !== right(one, i));
  };
  const chosen = [];
  for (let i = 0; i < size; i++) {
    if (label >= 0 && labels[i] !== label) continue;
    if (runs.some(one => fits(one, i) && (other === -2 || disagree(one, i)))) chosen.push(i);
  }
  return chosen;
}

// How many of some samples have each outcome, for one run.
function countOutcomes(table, run, condition, positions) {
  const counts = table.data.outcomes.map(() => 0), { outcomes } = table.record(run, condition);
  for (const i of positions) counts[outcomes[i]]++;
  return counts;
}

// Of some samples: how often each label was answered with each class, in their order.
function confusionCounts(table, run, condition, positions) {
  const { outcomes, predictions, set } = table.record(run, condition);
  const { labels } = table.sets[set], counts = new Map();
  for (const i of positions) {
    if (outcomes[i] === NOT_TESTED) continue;
    const key = `${labels[i]} ${predictions[i]}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...counts].map(([key, count]) => [...key.split(" ").map(Number), count])
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
}
