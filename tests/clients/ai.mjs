// npm's `ai` with its provider for compatible endpoints, unchanged: node ai.mjs URL KEY. Prints one JSON line for each answer.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, streamText } from "ai";

const [baseURL, apiKey] = process.argv.slice(2);
const gateway = createOpenAICompatible({ name: "gateway", baseURL, apiKey, includeUsage: true });
const asked = { model: gateway("default"), prompt: "say something" };
const say = (text, usage) => console.log(JSON.stringify({ text, prompt: usage.inputTokens ?? usage.tokens, output: usage.outputTokens ?? 0 }));

const whole = await generateText(asked);
say(whole.text, whole.usage);

const streamed = streamText(asked);
say(await streamed.text, await streamed.usage);

const vectors = await embedMany({ model: gateway.textEmbeddingModel("default"), values: ["a b", "c"] });
say(JSON.stringify(vectors.embeddings), vectors.usage);
