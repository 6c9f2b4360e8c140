#pragma once
// Writes a graph as a program of its own: the functions it calls, the calls, the passes, and the
// same without workers for comparison.

#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "passes.hpp"

namespace random_graphs {

class Printer {
 public:
  /// @param engine `LoopbackEngine` or `TcpEngine`.
  Printer(Graph const& graph, distgrad::BackwardMode mode, std::string engine)
      : graph_(graph),
        mode_(mode == distgrad::BackwardMode::fast ? "fast" : "smart"),
        engine_(std::move(engine)) {}

  std::string print() {
    out_ << "// Seed " << graph_.seed << " of tests/flow/random_graphs.cpp.\n" << preamble;
    print_operations();
    out_ << "\nint main() {\n";
    print_uncut();
    print_cut();
    out_ << "  cluster.shutdown();\n  return different;\n}\n";
    return std::move(out_).str();
  }

 private:
  static std::string_view const preamble;

  bool is_here(int node) const { return graph_.nodes[node].keep == Keep::sent; }
  static std::string number(std::int64_t n) { return std::to_string(n); }
  static std::string quoted_worker(int rank) { return "\"worker" + number(rank) + "\""; }
  /// `{one, two}`
  template <class Items, class Text>
  static std::string list(Items const& items, Text&& text) {
    std::string all = "{";
    for (auto const& item : items) all += (all.size() > 1 ? ", " : "") + text(item);
    return all + "}";
  }
  static std::string numbers(Numbers const& n) { return "Numbers" + list(n, number); }
  static std::string uncut(Value v) { return "u" + number(v.node) + "[" + number(v.output) + "]"; }
  static std::string sink(Value v) {
    return "s" + number(v.node) + (v.output > 0 ? "_" + number(v.output) : "");
  }
  std::string operand(Value v) const {
    if (is_here(v.node)) return "of(v" + number(v.node) + "[" + number(v.output) + "])";
    return "of(v" + number(v.node) + ", " + number(v.output) + ")";
  }

  void print_operations();
  void print_uncut();
  void print_cut();
  void print_leaf(int i);
  void print_call(int i);
  std::string result_of_call(Node const& node, std::vector<int> way) const;

  /// `backward`, `grad` and `gradient` as texts for one side.
  struct Side {
    bool is_cut;
    std::string variables;
  };
  template <class Value_>
  void print_passes(Side const& side, Value_&& value);
  template <class Value_>
  std::string print_roots(std::string const& name, Pass const& pass, Value_&& value);
  std::string options(std::string const& gradients, bool retain, bool create) const;
  void print_backward(Side const& side, std::string const& roots, std::string const& gradients,
                      bool retain, bool create);
  std::string gradient(Side const& side, int leaf) const;

  Graph const& graph_;
  std::string mode_, engine_;
  std::ostringstream out_;
};

inline std::string_view const Printer::preamble = R"(#include <distgrad/distgrad.hpp>

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ATen/ATen.h>

#include <iostream>
#include <optional>

using namespace distgrad;
using Tensors = std::vector<at::Tensor>;
using Numbers = std::vector<std::int64_t>;
using Way = std::vector<int>;

// What another worker gets: a tensor, or one of the tensors of a remote value.
struct Operand {
  at::Tensor tensor;
  std::optional<RRef<Tensors>> reference;
  std::int64_t output = 0;
};
using Operands = std::vector<Operand>;
Operand of(at::Tensor const& tensor) { return {tensor, {}, 0}; }
Operand of(RRef<Tensors> const& values, std::int64_t output) { return {{}, values, output}; }

Tensors copies(Tensors tensors) {
  for (auto& tensor : tensors) tensor = tensor.clone();
  return tensors;
}
// Runs an operation on the last worker of the way. With `Own` it may change its operands.
template <auto Operation, bool Own = false>
Tensors run(Way way, Numbers const& n, Operands const& operands) {
  if (!way.empty()) {
    int const next = way.front();
    way.erase(way.begin());
    return this_worker().rpc_sync<run<Operation, Own>>(next, way, n, operands);
  }
  Tensors x;
  for (auto const& operand : operands) {
    bool const is_here = operand.reference && operand.reference->is_owner();
    x.push_back(operand.reference ? operand.reference->to_here()[operand.output] : operand.tensor);
    if (Own && is_here) x.back() = x.back().clone();
  }
  return Operation(x, n);
}
// The same, leaving the result there.
template <auto Operation, bool Own = false>
RRef<Tensors> keep(Way way, Numbers const& n, Operands const& operands) {
  int const next = way.front();
  way.erase(way.begin());
  if (way.empty()) return this_worker().remote<run<Operation, Own>>(next, way, n, operands);
  return this_worker().rpc_sync<keep<Operation, Own>>(next, way, n, operands);
}
at::Tensor gradient_of(RRef<Tensors> const& leaf) {
  auto const gradient =
      this_worker().context_part(this_worker().current_context())->gradient(leaf.local_value()[0]);
  return gradient.defined() ? gradient.detach() : gradient;
}
at::Tensor penalty(Tensors const& gradients) {
  at::Tensor sum;
  for (auto const& g : gradients) {
    if (!g.defined() || !g.requires_grad()) continue;
    auto const part = g.clone().sin().sum();
    sum = sum.defined() ? sum.add(part) : part;
  }
  return sum;
}
int different = 0;
void show(char const* leaf, at::Tensor const& uncut, at::Tensor const& cut) {
  bool same = uncut.defined() == cut.defined();
  if (same && cut.defined()) same = at::allclose(uncut.to_dense(), cut.to_dense(), 1e-12, 1e-12);
  std::cout << leaf << (same ? ": same\n" : ": DIFFERENT\n") << "uncut:\n"
            << (uncut.defined() ? uncut.detach() : uncut) << "\ncut:\n" << cut << "\n\n";
  different += !same;
}

)";

/// Lines that begin further right.
inline std::string indented(std::string const& text) {
  std::string lines = "  ";
  for (std::size_t i = 0; i < text.size(); ++i) {
    lines += text[i];
    if (text[i] == '\n' && i + 1 < text.size()) lines += "  ";
  }
  return lines;
}

/// One statement a line. Blocks are told from lists by the space behind their brace.
inline std::string broken_up(std::string_view text) {
  std::string lines;
  std::size_t depth = 0;
  auto const new_line = [&] { lines += "\n" + std::string(2 * depth, ' '); };
  for (std::size_t i = 0; i < text.size(); ++i) {
    bool const before_space = i + 1 < text.size() && text[i + 1] == ' ';
    bool const before_end = before_space && i + 2 < text.size() && text[i + 2] == '}';
    bool const ends = text[i] == '}' && i > 0 && text[i - 1] == ' ';
    lines += text[i];
    if (text[i] == '{' && before_space) ++depth;
    if (before_end) --depth;
    bool const breaks = (text[i] == '{' || text[i] == ';' || ends) && before_space;
    if (breaks || before_end) ++i, new_line();
  }
  return lines;
}

inline void Printer::print_operations() {
  std::set<std::string_view> printed;
  for (auto const& node : graph_.nodes) {
    auto const& operation = *node.operation;
    if (!printed.insert(operation.name).second) continue;
    out_ << "Tensors f_" << operation.name
         << "([[maybe_unused]] Tensors const& x, [[maybe_unused]] Numbers const& n) "
         << broken_up(operation.text) << "\n";
  }
}

inline void Printer::print_uncut() {
  out_ << "  // Uncut.\n";
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    auto const& node = graph_.nodes[i];
    auto const inputs = list(node.inputs, uncut);
    bool const own = node.operation->operands == random_graphs::Operands::own;
    out_ << "  Tensors const u" << i << " = f_" << node.operation->name << "("
         << (own ? "copies(" + inputs + ")" : inputs) << ", " << list(node.numbers, number)
         << ");\n";
  }
  print_passes({false, "u"}, uncut);
}

inline void Printer::print_cut() {
  out_ << "\n  // Cut.\n";
  int workers = graph_.initiator + 1;
  for (auto const& node : graph_.nodes) {
    workers = std::max(workers, node.worker + 1);
    for (int relay : node.relays) workers = std::max(workers, relay + 1);
  }
  out_ << "  LocalCluster<" << workers << ", " << engine_ << "> cluster;\n"
       << "  auto& self = cluster[" << graph_.initiator << "];\n";
  for (int i = 0; i < graph_.leaves(); ++i) print_leaf(i);
  out_ << "  {\n";
  auto before = std::exchange(out_, {});
  out_ << "  auto ctx = self.context();\n";
  for (int i = graph_.leaves(); i < int(graph_.nodes.size()); ++i) print_call(i);
  for (auto const& value : graph_.sinks()) {
    out_ << "  auto const " << sink(value) << " = v" << value.node
         << (is_here(value.node) ? "[" : ".to_here()[") << value.output << "];\n";
  }
  print_passes({true, "v"}, sink);
  for (int i = 0; i < graph_.leaves(); ++i) {
    out_ << "  show(\"leaf " << i << "\", u" << i << "[0].grad(), " << gradient({true, "v"}, i)
         << ");\n";
  }
  before << indented(out_.str()) << "  }\n";
  out_ = std::move(before);
}

inline void Printer::print_leaf(int i) {
  auto const& leaf = graph_.nodes[i];
  auto const function = "f_" + std::string(leaf.operation->name);
  out_ << "  auto const v" << i << " = ";
  if (is_here(i)) {
    out_ << function << "({}, " << list(leaf.numbers, number) << ");\n";
  } else {
    out_ << "self.remote<run<" << function << ">>(" << quoted_worker(leaf.worker) << ", Way{}, "
         << numbers(leaf.numbers) << ", Operands{});\n";
  }
}

inline void Printer::print_call(int i) {
  auto const& node = graph_.nodes[i];
  auto way = node.relays;
  way.push_back(node.worker);
  auto const first = way.front();
  way.erase(way.begin());
  bool const own = node.operation->operands == random_graphs::Operands::own;
  auto const function = "f_" + std::string(node.operation->name) + (own ? ", true" : "");
  char const* call = "self.remote<run<";
  if (node.keep == Keep::sent) call = "self.rpc_sync<run<";
  if (node.keep == Keep::at_worker && !way.empty()) call = "self.rpc_sync<keep<";
  out_ << "  auto const v" << i << " = " << call << function << ">>(" << quoted_worker(first)
       << ", Way" << list(way, number) << ", " << numbers(node.numbers) << ",\n      Operands"
       << list(node.inputs, [this](Value v) { return operand(v); }) << ");\n";
}

inline std::string Printer::gradient(Side const& side, int leaf) const {
  auto const variable = side.variables + number(leaf);
  if (!side.is_cut) return variable + "[0].grad()";
  if (is_here(leaf)) return "ctx.gradient(" + variable + "[0])";
  return "self.rpc_sync<gradient_of>(" + quoted_worker(graph_.nodes[leaf].worker) + ", " +
         variable + ")";
}

inline std::string Printer::options(std::string const& gradients, bool retain, bool create) const {
  std::string text = "{.mode = BackwardMode::" + mode_;
  if (retain) text += ", .retain_graph = true";
  if (create) text += ", .create_graph = true";
  if (!gradients.empty()) text += ", .gradients = " + gradients;
  return text + "}";
}

/// Defines `<name>`. @return the name of the gradients, empty if there are none.
template <class Value_>
std::string Printer::print_roots(std::string const& name, Pass const& pass, Value_&& value) {
  if (pass.summed) {
    std::string sum;
    for (auto const& v : pass.sinks) {
      auto const part = value(v) + ".sum()";
      sum = sum.empty() ? part : sum + ".add(" + part + ")";
    }
    out_ << "  Tensors const " << name << "{" << sum << "};\n";
    return {};
  }
  out_ << "  Tensors const " << name << list(pass.sinks, value) << ";\n";
  std::size_t i = 0;
  auto const start = [&](Value) {
    std::ostringstream text;
    text << "at::full_like(" << name << "[" << i << "].detach(), " << start_of(i) << ")";
    ++i;
    return text.str();
  };
  out_ << "  Tensors const " << name << "_starts" << list(pass.sinks, start) << ";\n";
  return name + "_starts";
}

inline void Printer::print_backward(Side const& side, std::string const& roots,
                                    std::string const& gradients, bool retain, bool create) {
  if (side.is_cut) {
    out_ << "  ctx.backward(" << roots << ", " << options(gradients, retain, create) << ");\n";
    return;
  }
  out_ << "  torch::autograd::backward(" << roots << ", " << (gradients.empty() ? "{}" : gradients)
       << (retain ? ", true" : ", false") << (create ? ", true" : ", false") << ");\n";
}

template <class Value_>
void Printer::print_passes(Side const& side, Value_&& value) {
  auto const prefix = side.is_cut ? std::string("cut_") : std::string("uncut_");
  if (graph_.second == Second::none) {
    for (std::size_t i = 0; i < graph_.passes.size(); ++i) {
      auto const name = prefix + "roots" + number(std::int64_t(i));
      auto const gradients = print_roots(name, graph_.passes[i], value);
      print_backward(side, name, gradients, i + 1 < graph_.passes.size(), false);
    }
    return;
  }
  auto const roots = prefix + "roots", loss = prefix + "loss";
  auto const gradients = print_roots(roots, graph_.passes[0], value);
  auto const leaves = second_leaves(graph_);
  if (graph_.second == Second::by_grad && !leaves.empty()) {
    auto const inputs = "{" + list(leaves, [&](int leaf) {
                                return side.variables + number(leaf) + "[0]";
                              }).substr(1);
    out_ << "  auto const " << loss << " = penalty("
         << (side.is_cut ? "ctx.grad(" : "torch::autograd::grad(") << roots << ", " << inputs
         << ", ";
    if (side.is_cut) {
      out_ << options(gradients, true, true);
    } else {
      out_ << (gradients.empty() ? "{}" : gradients) << ", true, true, true";
    }
    out_ << "));\n";
  } else {
    print_backward(side, roots, gradients, true, true);
    out_ << "  auto const " << loss << " = penalty("
         << list(leaves, [&](int leaf) { return gradient(side, leaf); }) << ");\n";
  }
  out_ << "  if (" << loss << ".defined()) {\n  ";
  print_backward(side, "{" + loss + "}", "", false, false);
  out_ << "  }\n";
}

inline std::string program_of(Graph const& graph, distgrad::BackwardMode mode, std::string engine) {
  return Printer(graph, mode, std::move(engine)).print();
}

}  // namespace random_graphs
