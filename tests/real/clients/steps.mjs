// Runs one step of a script and prints what came of it: `node SCRIPT URL KEY MODEL STEP`. URL is without /v1.

const [url, key, model, step] = process.argv.slice(2);

export const asked = { url, key, model };

export const WEATHER = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};

export async function run(steps) {
  process.stdout.write(JSON.stringify(await steps[step]()));
}

// What an SDK throws, as far as it is the same on every machine.
export async function refusal(ask) {
  try {
    await ask();
  } catch (error) {
    return { name: error.constructor.name, status: error.status, code: error.code, message: error.message };
  }
  return null;
}
