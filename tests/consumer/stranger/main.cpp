#include <cstdio>

#include <distgrad/core/error.hpp>

bool other_file_agrees(distgrad::error_code code);

int main() {
  distgrad::Error const error(distgrad::errc::timeout, "a stranger waited");
  std::puts(error.what());
  return other_file_agrees(error.code()) ? 0 : 1;
}
