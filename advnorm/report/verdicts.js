// The verdicts of a page as sample_data.py packed them: decoded when they are first used.

const [NOT_TESTED, MISCLASSIFIED, BROKEN, ROBUST, CERTIFIED, NOT_CERTIFIED] = [0, 1, 2, 3, 4, 5];

function isCorrect(outcome) {
  return outcome === ROBUST || outcome === CERTIFIED;
}

class VerdictTable {
  constructor(data) {
    this.data = data;
    this.sets = data.sets.map(set => ({
      name: set.name,
      size: set.size,
      samples: set.samples ? unpack(set.samples) : null,
      labels: unpack(set.labels),
    }));
    this.places = new Map(data.records.map((record, place) => [`${record.run} ${record.condition}`, place]));
    this.decoded = new Map();
  }

  // The number of the sample at a position of a set.
  sample(set, position) {
    const { samples } = this.sets[set];
    return samples ? samples[position] : position;
  }

  // The verdicts of a run under a condition, or null.
  record(run, condition) {
    const place = this.places.get(`${run} ${condition}`);
    if (place === undefined) return null;
    if (!this.decoded.has(place)) this.decoded.set(place, this.decode(this.data.records[place]));
    return this.decoded.get(place);
  }

  decode({ set, outcomes, wrong, predictions, attacks, brokenBy }) {
    const { labels } = this.sets[set], codes = unpack(outcomes), flags = unpack(wrong);
    const others = unpack(predictions), by = unpack(brokenBy);
    const answers = Uint32Array.from(labels), attack = new Int32Array(codes.length).fill(-1);
    let nextAnswer = 0, nextAttack = 0;
    for (let i = 0; i < codes.length; i++) {
      if (flags[i]) answers[i] = others[nextAnswer++];
      if (codes[i] === BROKEN) attack[i] = by[nextAttack++];
    }
    return { set, outcomes: codes, predictions: answers, attack, attacks };
  }

  // The runs that have verdicts under a condition, on the data set of the first of them.
  runs(condition) {
    const all = this.data.runs.map((_, run) => run).filter(run => this.record(run, condition));
    return all.filter(run => this.record(run, condition).set === this.record(all[0], condition).set);
  }

  set(condition) {
    return this.record(this.runs(condition)[0], condition).set;
  }

  // The conditions that differ from one in their attack or radius alone, by radius.
  family(condition) {
    const { family } = this.data.conditions[condition];
    if (!family) return [];
    const all = this.data.conditions.map((_, place) => place);
    return all.filter(place => this.data.conditions[place].family === family)
      .sort((a, b) => this.data.conditions[a].eps - this.data.conditions[b].eps);
  }

  // The smallest radius at which any attack broke each sample of a run: NaN if none did.
  firstRadius(run, condition) {
    const set = this.set(condition), first = new Float64Array(this.sets[set].size).fill(NaN);
    for (const other of this.family(condition)) {
      const record = this.record(run, other);
      if (record?.set !== set) continue;
      const { eps } = this.data.conditions[other];
      record.outcomes.forEach((outcome, i) => {
        if (outcome === BROKEN && isNaN(first[i])) first[i] = eps;
      });
    }
    return first;
  }
}
