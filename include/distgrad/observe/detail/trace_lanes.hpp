#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

namespace distgrad::detail {

// Places spans on lanes, so that two of one lane are apart or one is inside the other: what a
// drawing of nested boxes needs. A span goes to the first lane of its home where it fits.
class TraceLanes {
 public:
  enum class Kind : std::uint8_t { call, function, pass };
  struct Span {
    std::int64_t begin = 0, end = 0;
    std::size_t home = 0;
    Kind kind = Kind::call;
    std::size_t lane = 0;  // the answer, counted within the home
  };

  static void assign(std::vector<Span>& spans) {
    std::vector<std::size_t> order(spans.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
      return spans[a].begin != spans[b].begin ? spans[a].begin < spans[b].begin
                                              : spans[a].end > spans[b].end;
    });
    TraceLanes lanes;
    for (auto const i : order) spans[i].lane = lanes.place(spans[i]);
  }

 private:
  using Open = std::vector<Span const*>;  // each inside the one before

  std::size_t place(Span const& span) {
    auto& lanes = homes_[span.home];
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      if (enter(lanes[lane], span)) return lane;
    }
    lanes.push_back({&span});
    return lanes.size() - 1;
  }
  static bool enter(Open& open, Span const& span) {
    while (!open.empty() && open.back()->end <= span.begin) open.pop_back();
    if (!open.empty() && !holds(*open.back(), span)) return false;
    open.push_back(&span);
    return true;
  }
  // A call that another one overlaps is not a part of it: they are under way at once.
  static bool holds(Span const& outer, Span const& inner) {
    bool const is_alike = outer.kind == inner.kind && inner.kind != Kind::function;
    return inner.end <= outer.end && !is_alike;
  }

  std::map<std::size_t, std::vector<Open>> homes_;
};

}  // namespace distgrad::detail
