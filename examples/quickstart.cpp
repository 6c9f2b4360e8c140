// How do I compute with a layer that lives on another worker, and train it?
#include <distgrad/distgrad.hpp>

#include <ATen/ops/ones.h>
#include <torch/optim/sgd.h>

#include <iostream>

struct Layer {  // an ordinary class: nothing to derive from, no macro
  at::Tensor weight = at::ones({3, 2}).mul(0.5).set_requires_grad(true);  // [inputs, outputs]
  at::Tensor forward(at::Tensor const& x) const { return x.mm(weight).tanh(); }
};

Layer make_layer() { return {}; }
distgrad::RRef<at::Tensor> weight_of(distgrad::RRef<Layer> const& layer) {
  return distgrad::this_worker().make_rref(layer.local_value().weight);
}
at::Tensor gradient_of(distgrad::RRef<at::Tensor> const& leaf, distgrad::ContextId context) {
  return distgrad::this_worker().context_part(context)->gradient(leaf.local_value());
}

int main() {
  distgrad::LocalCluster<2> cluster;  // worker0 and worker1; over TCP they would be processes
  auto& worker0 = cluster[0];

  auto layer = worker0.remote<make_layer>("worker1");  // RRef<Layer>: stays on worker1
  auto weight = worker0.rpc_sync<weight_of>("worker1", layer);
  auto x = at::ones({1, 3}).set_requires_grad(true);
  distgrad::DistributedOptimizer<torch::optim::SGD> optimizer(
      worker0, {worker0.make_rref(x), weight}, torch::optim::SGDOptions(0.1));

  auto context = worker0.context();                // calls on this thread are recorded
  auto y = layer.rpc_sync<&Layer::forward>(x);     // runs on worker1
  context.backward({y.sum()});                     // follows the call to worker1 and back
  std::cout << "dx =\n" << context.gradient(x) << '\n';
  std::cout << "dW on worker1 =\n"
            << worker0.rpc_sync<gradient_of>("worker1", weight, context.id()) << '\n';

  optimizer.step(context);  // each parameter is changed where it lives
  std::cout << "W after one step =\n" << weight.to_here() << std::endl;
}

// Output:
// dx =
//  0.1807  0.1807  0.1807
// [ CPUFloatType{1,3} ]
// dW on worker1 =
//  0.1807  0.1807
//  0.1807  0.1807
//  0.1807  0.1807
// [ CPUFloatType{3,2} ]
// W after one step =
//  0.4819  0.4819
//  0.4819  0.4819
//  0.4819  0.4819
// [ CPUFloatType{3,2} ]
