// The engine of the search finds the sections that have every word of a question. Where these are
// fewer than three, this adds those that have some of the words, ranked by BM25: rare words count
// for more than frequent ones, words of a title for three, and short sections are preferred.
{
  const [INDEX, QUERY, RESULT] = [0, 2, 3]; // kinds of messages
  const [ENOUGH, SHOWN, OF_TITLE] = [3, 10, 3];

  class Ranking {
    constructor({ config, items }) {
      this.separator = new RegExp(config.separator, "u");
      this.items = items;
    }

    wordsOf(html) {
      const text = html.replace(/<[^>]+>/g, " ").toLowerCase();
      return text.split(this.separator).filter(Boolean);
    }

    /** How often a section has each word, and how many it has. */
    count({ title, text, path = [] }) {
      const counts = new Map();
      const add = (word, times) => counts.set(word, (counts.get(word) ?? 0) + times);
      const titled = this.wordsOf(title);
      const others = this.wordsOf(`${text} ${path.join(" ")}`);
      titled.forEach((word) => add(word, OF_TITLE));
      others.forEach((word) => add(word, 1));
      return { counts, length: titled.length + others.length };
    }

    best(question) {
      this.sections ??= this.items.map((item) => this.count(item));
      const total = this.sections.length;
      const mean = this.sections.reduce((sum, { length }) => sum + length, 0) / total;
      const words = [...new Set(this.wordsOf(question))];
      const scores = this.sections.map(() => 0);
      for (const word of words) {
        const having = this.sections.filter(({ counts }) => counts.has(word)).length;
        const weight = Math.log(1 + (total - having + 0.5) / (having + 0.5));
        this.sections.forEach(({ counts, length }, id) => {
          const count = counts.get(word) ?? 0;
          scores[id] += (weight * 2.2 * count) / (count + 1.2 * (0.4 + (0.6 * length) / mean));
        });
      }
      return [...scores.keys()]
        .filter((id) => scores[id] > 0)
        .sort((one, other) => scores[other] - scores[one])
        .map((id) => ({ id, matches: ["title", "text"].map((field) => this.mark(id, field, words)) }));
    }

    /** Where a section has words, as the engine says it. */
    mark(id, field, words) {
      const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
      const found = this.items[id][field].matchAll(
        new RegExp(`(?<![\\p{L}\\p{N}])(?:${escaped.join("|")})(?![\\p{L}\\p{N}])`, "giu"),
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
      if (message.type === INDEX) this.ranking = new Ranking(message.data);
      if (message.type === QUERY) this.waiting.push(message.data.input);
      super.postMessage(message);
    }

    set onmessage(listener) {
      super.onmessage =
        listener &&
        ((event) => {
          if (event.data.type === RESULT) this.add(event.data.data, this.waiting.shift());
          listener(event);
        });
    }

    add(answer, question) {
      if (answer.pagination.total >= ENOUGH || !question) return;
      const found = new Set(answer.items.map(({ id }) => id));
      const others = this.ranking.best(question).filter(({ id }) => !found.has(id));
      answer.items.push(...others.slice(0, SHOWN - found.size));
      answer.pagination = { total: answer.items.length };
    }
  };
}
