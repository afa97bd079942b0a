// npm's `openai`, unchanged: node openai.mjs URL KEY. Prints one JSON line for each answer.
import OpenAI from "openai";

const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey });
const asked = { model: "default", messages: [{ role: "user", content: "say something" }] };
const say = (text, usage) => console.log(JSON.stringify({ text, prompt: usage.prompt_tokens, output: usage.completion_tokens ?? 0 }));

const whole = await client.chat.completions.create(asked);
say(whole.choices[0].message.content, whole.usage);

let text = "";
let usage;
for await (const chunk of await client.chat.completions.create({ ...asked, stream: true, stream_options: { include_usage: true } })) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
say(text, usage);

const vectors = await client.embeddings.create({ model: "default", input: ["a b", "c"] });
say(JSON.stringify(vectors.data.map((each) => each.embedding)), vectors.usage);
