// A table of what each turn cost, for people: on standard error, when all rows are complete.
export class Table {
  #rows = new Map();

  constructor(name, columns = ["without Capstan", "with Capstan"]) {
    Object.assign(this, { name, columns });
  }

  set(row, column, { calls, seconds, code }) {
    const cells = this.#rows.get(row) ?? {};
    const failed = code === 0 ? "" : ", the turn fails";
    this.#rows.set(row, { ...cells, [column]: `${calls} calls, ${seconds.toFixed(1)} s${failed}` });
  }

  print() {
    const line = (cells) => `| ${cells.join(" | ")} |\n`;
    const rows = [...this.#rows].map(([row, cells]) =>
      line([row, ...this.columns.map((column) => cells[column] ?? "–")]),
    );
    const head = [this.name, ...this.columns];
    process.stderr.write(`\n${line(head)}${line(head.map(() => "---"))}${rows.join("")}\n`);
  }
}
