// Ask the site's own search, as its pages do: node search.cjs SITE, with questions on stdin.
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const site = process.argv[2];
const workers = path.join(site, "assets/javascripts/workers");
const [engine] = fs.readdirSync(workers).filter((name) => /^search\..*\.js$/.test(name));
const index = JSON.parse(fs.readFileSync(path.join(site, "search.json"), "utf8"));
const questions = JSON.parse(fs.readFileSync(0, "utf8"));

// The engine is a web worker; these are the kinds of its messages.
const [INDEX, READY, QUERY, RESULT, FAILED] = [0, 1, 2, 3, 4];
const answers = [];
const worker = {
  postMessage({ type, data }) {
    if (type === FAILED) throw new Error(`the engine failed at: ${questions[answers.length]}`);
    if (type === RESULT) answers.push(data.items.map((item) => index.items[item.id].location));
    if (type !== READY && type !== RESULT) return;
    if (answers.length === questions.length) process.stdout.write(JSON.stringify(answers));
    else setTimeout(ask, 2); // as after a key: the engine knows pages of answers by their millisecond
  },
};

function ask() {
  const input = { type: "operator", data: { operator: "and", operands: [] } };
  const query = { input: questions[answers.length], filter: { input, aggregation: { input: [] } } };
  worker.onmessage({ data: { type: QUERY, data: query } });
}

vm.runInNewContext(fs.readFileSync(path.join(workers, engine), "utf8"), { self: worker, Intl });
worker.onmessage({ data: { type: INDEX, data: index } });
