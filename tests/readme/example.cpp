#include <cstdio>

int main() {
  char const* text = "[1;2]\n  3";
  std::puts(text);
}

// Output:
// [1;2]
//   3
