// Readings of /metrics over time, and the curves that the status view draws from them. Pure functions.
import {histogram, histogramIncrease, increase, parseMetrics, quantile, total, totalBy} from './metrics.mjs';

export const SPAN_S = 300;  // how far back the plots go
const RATE_S = 3;  // rates are over this long, so that one slow poll is no spike

export function reading(text, time) {
  const families = parseMetrics(text);
  const sum = (name) => total(families, name);
  return {
    time,
    promptTokens: sum('prompt_tokens_total'),
    generationTokens: sum('generation_tokens_total'),
    running: sum('num_requests_running'),
    waiting: sum('num_requests_waiting'),
    cacheUse: sum('kv_cache_usage_perc'),
    cacheQueries: sum('prefix_cache_queries_total'),
    cacheHits: sum('prefix_cache_hits_total'),
    preemptions: sum('num_preemptions_total'),
    ended: totalBy(families, 'request_success_total', 'finished_reason'),
    firstToken: histogram(families, 'time_to_first_token_seconds'),
    interToken: histogram(families, 'inter_token_latency_seconds'),
    endToEnd: histogram(families, 'e2e_request_latency_seconds'),
  };
}

// Keeps what the plots can show, and one window more for the percentiles at their left edge.
export function addReading(history, next) {
  history.push(next);
  while (next.time - history[0].time > 2 * SPAN_S) history.shift();
}

// The youngest reading at least `seconds` older than reading i, else the oldest there is.
function before(history, i, seconds) {
  let j = i;
  while (j > 0 && history[i].time - history[j].time < seconds) j--;
  return history[j];
}

// Per second; null where there is nothing to compare with.
export function rates(history, name) {
  return history.map((now, i) => {
    const then = before(history, i, RATE_S);
    const grown = increase(then[name], now[name]);
    return then === now || grown === null ? null : grown / (now.time - then.time);
  });
}

export function percentiles(history, name, q, seconds) {
  return history.map((now, i) => i === 0 ? null : quantile(histogramIncrease(before(history, i, seconds)[name], now[name]), q));
}

// Part of the prompt tokens asked for in the last `seconds` that the cache had.
export function hitRates(history, seconds) {
  return history.map((now, i) => {
    const then = before(history, i, seconds);
    const asked = increase(then.cacheQueries, now.cacheQueries);
    return i > 0 && asked > 0 ? increase(then.cacheHits, now.cacheHits) / asked : null;
  });
}
