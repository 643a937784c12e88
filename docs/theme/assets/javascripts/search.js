// The engine of the search finds the sections that have every word of a question, or its beginning.
// This ranks those that have some of its words by BM25, with the endings of words removed: rare
// words count for more than frequent ones, words of a heading for three and a bonus. The engine
// answers where no section has any, as while a word is typed.
{
  const [INDEX, QUERY, RESULT] = [0, 2, 3]; // kinds of messages
  const [SHOWN, NEAREST, OF_TITLE, BONUS, OF_REFERENCE] = [10, 3, 3, 0.5, 0.7];
  const WEAK = 0.3; // the best section has less of the weight of a question: nothing fits well
  const ENDINGS = /(?<=.{4})(?:ations?|ings?|ions?|ables?|ers?|ed|es?|s)$/;
  // Words of questions, by those of these pages.
  const SAME = new Map(
    Object.entries({
      ahead: ["aot"],
      capture: ["closure", "closures"],
      cost: ["overhead"],
      hash: ["unhashable"],
      jit: ["jited", "jitted", "jitting"],
      memory: ["leak", "leaks", "oom"],
      method: ["classmethod"],
      program: ["executable", "executables"],
      recompile: ["retrace", "retraced", "retraces", "retracing"],
      slow: ["performance", "slower"],
    }).flatMap(([word, others]) => others.map((other) => [other, word])),
  );
  const NOTICE = { title: "Nothing fits well. The nearest headings:", location: "#nothing-fits-well" };

  class Ranking {
    constructor({ items }) {
      this.items = [...items];
      this.notice = items.push({ ...NOTICE, level: 1, text: "", path: [], tags: [] }) - 1;
    }

    wordsOf(html) {
      const words = html.replace(/<[^>]+>/g, " ").toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
      return words.map((word) => (SAME.get(word) ?? word).replace(ENDINGS, ""));
    }

    /** How often a section has each word, and how many it has. A name of the API is no heading. */
    count({ title, text, path = [], location }) {
      const counts = new Map();
      const add = (word, times) => counts.set(word, (counts.get(word) ?? 0) + times);
      const titled = location.includes("#leafwise.") ? [] : this.wordsOf(title);
      const others = this.wordsOf(`${text} ${path.join(" ")} ${titled.length ? "" : title}`);
      titled.forEach((word) => add(word, OF_TITLE));
      others.forEach((word) => add(word, 1));
      const factor = location.startsWith("reference/") ? OF_REFERENCE : 1;
      return { counts, factor, titled: new Set(titled), length: titled.length + others.length };
    }

    best(question) {
      this.sections ??= this.items.map((item) => this.count(item));
      const total = this.sections.length;
      const mean = this.sections.reduce((sum, { length }) => sum + length, 0) / total;
      const words = [...new Set(this.wordsOf(question))];
      const scores = this.sections.map((_, id) => ({ id, score: 0, share: 0, heading: 0 }));
      let whole = 0;
      for (const word of words) {
        const having = this.sections.filter(({ counts }) => counts.has(word)).length;
        const weight = Math.log(1 + (total - having + 0.5) / (having + 0.5));
        whole += weight;
        this.sections.forEach(({ counts, factor, length, titled }, id) => {
          const count = counts.get(word);
          if (!count) return;
          const found = (2.2 * count) / (count + 1.2 * (0.6 + (0.4 * length) / mean));
          scores[id].score += factor * weight * (found + (titled.has(word) ? BONUS : 0));
          scores[id].share += weight;
          scores[id].heading += titled.has(word) ? weight : 0;
        });
      }
      const order = (key) => (one, other) => other[key] - one[key] || other.score - one.score;
      const ranked = scores.filter(({ score }) => score > 0).sort(order("score"));
      const weak = ranked.length > 0 && ranked[0].share < WEAK * whole;
      const shown = weak ? ranked.sort(order("heading")).slice(0, NEAREST) : ranked.slice(0, SHOWN);
      const found = weak ? [this.notice, ...shown.map(({ id }) => id)] : shown.map(({ id }) => id);
      const marks = (id) => ["title", "text"].map((field) => this.mark(id, field, words));
      return found.map((id) => ({ id, matches: id === this.notice ? [] : marks(id) }));
    }

    /** Where a section has words, as the engine says it. */
    mark(id, field, words) {
      const found = this.items[id][field].matchAll(
        new RegExp(`(?<![\\p{L}\\p{N}])(?:${words.join("|")})[\\p{L}\\p{N}]*`, "giu"),
      );
      const ranges = [...found].map(({ index: start, 0: { length } }) => ({
        start,
        end: start + length,
        value: length,
      }));
      return { field, value: { highlight: { ranges } } };
    }
  }

  globalThis.Worker = class extends Worker {
    waiting = [];

    postMessage(message) {
      const { type, data } = message;
      if (type === INDEX) this.ranking = new Ranking(data);
      if (type === QUERY) this.waiting.push(data.input);
      // The page shows the notice from its own list, and the engine does not find it.
      super.postMessage(type === INDEX ? { type, data: { ...data, items: this.ranking.items } } : message);
    }

    set onmessage(listener) {
      super.onmessage =
        listener &&
        ((event) => {
          if (event.data.type === RESULT) this.rank(event.data.data, this.waiting.shift());
          listener(event);
        });
    }

    rank(answer, question) {
      const found = question ? this.ranking.best(question) : [];
      if (!found.length) return;
      answer.items = found;
      answer.pagination = { total: found.length };
    }
  };
}
