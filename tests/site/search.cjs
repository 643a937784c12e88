// Ask the site's own search, as its pages do: node search.cjs SITE, with questions on stdin.
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const site = process.argv[2];
const scripts = path.join(site, "assets/javascripts");
const workers = path.join(scripts, "workers");
const [engine] = fs.readdirSync(workers).filter((name) => /^search\..*\.js$/.test(name));
const index = JSON.parse(fs.readFileSync(path.join(site, "search.json"), "utf8"));
const questions = JSON.parse(fs.readFileSync(0, "utf8"));

// The kinds of messages.
const [INDEX, READY, QUERY, RESULT, FAILED] = [0, 1, 2, 3, 4];

class Worker {
  constructor(source) {
    this.inside = { postMessage: (data) => this.onmessage({ data: structuredClone(data) }) };
    vm.runInNewContext(fs.readFileSync(source, "utf8"), { self: this.inside, Intl });
  }

  postMessage(data) {
    this.inside.onmessage({ data: structuredClone(data) });
  }
}

const page = vm.createContext({ Worker });
vm.runInContext(fs.readFileSync(path.join(scripts, "search.js"), "utf8"), page);
const worker = new page.Worker(path.join(workers, engine));
const answers = [];

worker.onmessage = ({ data: { type, data } }) => {
  if (type === FAILED) throw new Error(`the engine failed at: ${questions[answers.length]}`);
  if (type === RESULT) answers.push(data.items.map((item) => index.items[item.id].location));
  if (type !== READY && type !== RESULT) return;
  if (answers.length === questions.length) process.stdout.write(JSON.stringify(answers));
  else ask();
};

function ask() {
  const input = { type: "operator", data: { operator: "and", operands: [] } };
  const query = { input: questions[answers.length], filter: { input, aggregation: { input: [] } } };
  worker.postMessage({ type: QUERY, data: query });
}

worker.postMessage({ type: INDEX, data: index });
