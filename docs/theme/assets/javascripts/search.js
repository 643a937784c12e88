// The engine of the search finds the sections that have every word of a question. Where it finds
// fewer than three, this asks again with fewer and fewer words, and lets the rarest go last.
{
  const [QUERY, RESULT] = [2, 3]; // kinds of messages
  const [ENOUGH, MOST] = [3, 7]; // sections found; words left out in all combinations

  const choose = (words, count) =>
    count === 0
      ? [[]]
      : words.flatMap((word, at) =>
          choose(words.slice(at + 1), count - 1).map((rest) => [word, ...rest]),
        );

  globalThis.Worker = class extends Worker {
    waiting = [];
    asked = 0;

    async postMessage(message) {
      if (message.type !== QUERY) return super.postMessage(message);
      const number = ++this.asked;
      const answer = await this.ask(message.data);
      if (answer.pagination.total < ENOUGH) await this.askWithLess(message.data, answer);
      // What was typed in the meantime has an answer of its own.
      if (number === this.asked) this.listener?.({ data: { type: RESULT, data: answer } });
    }

    ask(query, input = query.input) {
      return new Promise((resolve) => {
        this.waiting.push(resolve);
        super.postMessage({ type: QUERY, data: { ...query, input } });
      });
    }

    async askWithLess(query, answer) {
      const typed = query.input.split(/\s+/).filter(Boolean);
      const alone = await Promise.all(typed.map((word) => this.ask(query, word)));
      const words = typed
        .map((word, at) => ({ word, total: alone[at].pagination.total }))
        .filter(({ total }) => total > 0)
        .sort((one, other) => one.total - other.total)
        .map(({ word }) => word)
        .slice(0, MOST);
      for (let count = words.length; count > 0 && answer.items.length < ENOUGH; count--) {
        const inputs = choose(words, count).map((some) => some.join(" "));
        const found = new Set(answer.items.map((item) => item.id));
        for (const { items } of await Promise.all(inputs.map((input) => this.ask(query, input))))
          answer.items.push(...items.filter((item) => !found.has(item.id)));
      }
      answer.pagination = { total: answer.items.length };
    }

    set onmessage(listener) {
      this.listener = listener;
      super.onmessage = listener && ((event) => {
        if (event.data.type === RESULT) this.waiting.shift()(event.data.data);
        else listener(event);
      });
    }
  };
}
