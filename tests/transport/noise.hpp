#pragma once
// A line that hurts what passes, the same way for the same seed.
#include <cstddef>
#include <random>
#include <span>
#include <vector>

namespace noise {

/// How often, per byte; the length of a burst and of inserted garbage is up to `longest`.
struct Rates {
  double flipped_bit = 0, lost = 0, garbage = 0, burst = 0;
  std::size_t longest = 40;
};

class Line {
 public:
  Line(unsigned seed, Rates rates) : random_(seed), rates_(rates) {}

  /// What arrives of `bytes`.
  std::vector<std::byte> pass(std::span<std::byte const> bytes) {
    std::vector<std::byte> out;
    for (auto byte : bytes) {
      if (burst_ == 0 && happens(rates_.burst)) burst_ = below(rates_.longest);
      if (happens(rates_.garbage)) {
        for (auto n = below(rates_.longest); n > 0; --n) out.push_back(any());
      }
      if (happens(rates_.lost)) continue;
      if (happens(rates_.flipped_bit)) byte ^= std::byte{1} << below(8);
      out.push_back(burst_ > 0 ? (--burst_, any()) : byte);
    }
    return out;
  }

  std::size_t below(std::size_t bound) { return random_() % bound; }

 private:
  bool happens(double rate) { return std::uniform_real_distribution<>()(random_) < rate; }
  std::byte any() { return static_cast<std::byte>(random_()); }

  std::mt19937 random_;
  Rates rates_;
  std::size_t burst_ = 0;
};

}  // namespace noise
