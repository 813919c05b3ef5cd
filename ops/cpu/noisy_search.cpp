#include "noisy_search.h"

#include <algorithm>

#include "distribution.h"

namespace spec {

NoisySearch::NoisySearch(const Row& row, float max, float low, float temperature,
                         const Noise& noise, Scratch& scratch)
    : row_(row),
      max_(max),
      low_(low),
      scale_(1.0 / temperature),
      rounded_scale_(to_float(scale_)),
      inverse_scale_(temperature / kShrink),
      noise_(noise),
      scratch_(scratch) {}

int NoisySearch::find(int guess) {
  const int num_chunks = row_.num_chunks();
  scratch_.bounds.resize(num_chunks);
  scratch_.chunk_least.resize(num_chunks);
  scratch_.chosen.resize(num_chunks + 16);
  const int likeliest = block_math().chunk_bounds(
      scratch_.chunk_max.data(), num_chunks, max_, rounded_scale_, low_, noise_.source,
      scratch_.chunk_least.data(), scratch_.bounds.data());
  const bool is_token = guess >= 0 && guess < row_.vocab();
  if (is_token) try_guess(guess);
  try_least(likeliest);
  const int searched = is_token ? -1 : likeliest;
  if (!is_token) {
    hold_others(likeliest);
    try_held();
  }
  // Where many tokens are about as likely, the winner has nearly always the least number of its
  // chunk, which is at hand. So fewer of the others are left.
  const int32_t* const chosen = scratch_.chosen.data();
  const int num_promising = choose_chunks();
  for (int i = 0; i < num_promising; i++) try_least(chosen[i]);
  const int num_left = choose_chunks();
  for (int i = 0; i < num_left; i++) {
    if (chosen[i] != searched) hold_others(chosen[i]);
  }
  try_held();
  return token_;
}

int NoisySearch::choose_chunks() {
  return block_math().places(scratch_.bounds.data(), row_.num_chunks(), to_float(best_),
                             scratch_.chosen.data());
}

void NoisySearch::try_guess(int token) {
  const float logit = row_.at(token);
  const int chunk = token / kChunk, place = token % kChunk;
  const double beyond = place == place_of_least(chunk) ? 0 : noise_.beyond(chunk, place);
  if (logit >= low_) try_token(token, logit, least(chunk) + beyond);
}

void NoisySearch::try_least(int chunk) {
  const int token = chunk * kChunk + place_of_least(chunk);
  if (token >= row_.vocab()) return;
  const float logit = row_.at(token);
  const float below = (logit - scratch_.chunk_max[chunk]) * rounded_scale_ * kShrink;
  const bool may_win = logit >= low_ && scratch_.bounds[chunk] + below >= best_;
  if (may_win) try_token(token, logit, least(chunk));
}

void NoisySearch::hold_others(int chunk) {
  if (scratch_.bounds[chunk] < best_) return;
  Candidates& held = scratch_.candidates;
  const int first = chunk * kChunk, n = std::min(kChunk, row_.vocab() - first);
  const float* x = row_.values(first, n, scratch_.values);
  if (!held.has_room()) try_held();
  uint64_t bits[kChunk / 64];
  block_math().mark(x, n, std::max(low_, least_logit(chunk)), bits);
  const int with_least = place_of_least(chunk);
  bits[with_least / 64] &= ~(uint64_t{1} << with_least % 64);
  for (int start = 0; start < kChunk; start += 64) {
    uint64_t left = bits[start / 64];
    const auto hold_first = [&] {
      const int place = left ? start + __builtin_ctzll(left) : 0;
      held.chunk[held.count] = chunk;
      held.place[held.count] = place;
      held.least[held.count] = scratch_.chunk_least[chunk].number;
      held.logit[held.count] = x[place];
      held.count += left != 0;
      left &= left - 1;
    };
    // Mostly there are two at most. How many cannot be predicted, so there is no branch for it.
    hold_first();
    hold_first();
    while (left) hold_first();
  }
}

void NoisySearch::try_held() {
  Candidates& held = scratch_.candidates;
  float bounds[Candidates::kSize];
  block_math().token_bounds(held, max_, rounded_scale_, noise_.source, bounds);
  for (int i = 0; i < held.count; i++) {
    if (bounds[i] < best_) continue;
    const int chunk = held.chunk[i], place = held.place[i];
    const double number = least(chunk) + noise_.beyond(chunk, place);
    try_token(chunk * kChunk + place, held.logit[i], number);
  }
  held.count = 0;
}

void NoisySearch::try_token(int token, float logit, double number) {
  const double reached = (double{logit} - max_) * scale_ - std::log(number);
  if (reached > best_ || (reached == best_ && token < token_)) {
    best_ = reached;
    token_ = token;
  }
}

int NoisySearch::place_of_least(int chunk) const {
  return scratch_.chunk_least[chunk].place % kChunk;
}

double NoisySearch::least(int chunk) const {
  return Noise::exponential(scratch_.chunk_least[chunk].number) / kChunk;
}

float NoisySearch::least_logit(int chunk) const {
  const double room = (scratch_.bounds[chunk] - best_) * inverse_scale_;
  const double least = scratch_.chunk_max[chunk] - room;
  return to_float(least - std::abs(least) * 0x1p-23);  // rounded down
}

}  // namespace spec
