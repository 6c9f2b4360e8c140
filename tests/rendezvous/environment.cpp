#include <distgrad/rendezvous/environment.hpp>

#include <map>

#include <doctest/doctest.h>

namespace environment_tests {

namespace {

using namespace distgrad;
using Variables = std::map<std::string, std::string>;

RendezvousSettings read(Variables const& variables) {
  return RendezvousSettings::from_environment([&](char const* name) -> char const* {
    auto const found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_text(Variables const& variables) {
  try {
    read(variables);
  } catch (Error const& error) {
    CHECK(error.code() == errc::invalid_argument);
    return error.text();
  }
  return {};
}

Variables const complete{
    {"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};

Variables with(std::string const& name, std::string const& value) {
  auto variables = complete;
  variables[name] = value;
  return variables;
}

}  // namespace

TEST_CASE("settings come from the launcher's variables") {
  auto variables = complete;
  variables["DISTGRAD_JOB_SECRET"] = "s";
  auto const settings = read(variables);
  CHECK(settings.rank == 2);
  CHECK(settings.world_size == 3);
  CHECK(settings.master_address == "node0");
  CHECK(settings.master_port == 29500);
  CHECK(settings.job_secret == "s");
}

TEST_CASE("a variable that is missing or empty is named") {
  for (auto const& [name, value] : complete) {
    CAPTURE(name);
    auto variables = complete;
    variables.erase(name);
    CHECK(error_text(variables).find(name + " is not set") != std::string::npos);
    CHECK(error_text(with(name, "")).find(name + " is not set") != std::string::npos);
  }
}

TEST_CASE("a variable that is malformed is named with its value") {
  for (auto const& [name, value] :
       Variables{{"RANK", "two"}, {"WORLD_SIZE", "0"}, {"MASTER_PORT", "70000"}}) {
    CAPTURE(name);
    CHECK(error_text(with(name, value)).find(name + " is '" + value + "'") != std::string::npos);
  }
  for (auto const* bad : {"-1", "1x", " 1", "99999999999"}) {
    CHECK(error_text(with("RANK", bad)).find("RANK is '") != std::string::npos);
    CHECK(error_text(with("MASTER_PORT", bad)).find("MASTER_PORT is '") != std::string::npos);
  }
  CHECK(error_text(with("MASTER_PORT", "0")).find("MASTER_PORT is '0'") != std::string::npos);
  CHECK(error_text(with("RANK", "3")).find("WORLD_SIZE is 3") != std::string::npos);
}

TEST_CASE("a group of one needs no master") {
  auto const settings = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  CHECK(settings.world_size == 1);
  CHECK(settings.master_address.empty());
}

}  // namespace environment_tests
