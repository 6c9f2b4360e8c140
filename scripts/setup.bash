# What scripts/test and scripts/demo share: installing what is missing, and configuring. Sourced in
# the root of the repository. Reads `libtorch`: the version of a wheel to take from PyPI, or empty.

say() { printf '\n== %s\n' "$*"; }
die() { printf 'scripts/%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

is_installed() { [[ $(dpkg-query -W -f '${Status}' "$1" 2>/dev/null) == *' installed' ]]; }

has_boost() {
  local version
  version=$(sed -n 's/^#define BOOST_VERSION \([0-9]*\)$/\1/p' /usr/include/boost/version.hpp 2>/dev/null)
  [[ ${version:-0} -ge 108100 ]]
}

# Debian 12 has the needed Boost only under its number; newer releases have it as the default.
boost_package() {
  if apt-cache show libboost1.81-dev >/dev/null 2>&1; then
    echo libboost1.81-dev
  else
    echo libboost-dev
  fi
}

install_packages() {
  command -v apt-get >/dev/null || {
    echo "No apt-get here: using the compiler, CMake 3.24, Ninja, Boost 1.81 and doctest as they are."
    return
  }
  local missing=() package
  for package in g++ cmake ninja-build ccache doctest-dev libssl-dev pkg-config; do
    is_installed "$package" || missing+=("$package")
  done
  usable_python >/dev/null || missing+=(python3-venv ca-certificates)  # for what comes from PyPI
  if [[ -z $libtorch && -z ${CMAKE_PREFIX_PATH:-} ]]; then
    for package in libtorch-dev libopenblas0-pthread; do
      is_installed "$package" || missing+=("$package")
    done
  fi
  has_boost || missing+=(boost)
  [[ ${#missing[@]} -gt 0 ]] || return 0

  apt_install "${missing[@]/#boost/$(boost_package)}" ||
    die "installing failed. Install by hand, then try again: apt-get install ${missing[*]}"
}

# What only a test needs, which says so and is skipped without it.
install_optional() {
  local package
  for package in "$@"; do
    is_installed "$package" || ! command -v apt-get >/dev/null || apt_install "$package" ||
      echo "going on without $package"
  done
}

apt_install() {
  local root=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || { echo "Not root, and no sudo: cannot install $*."; return 1; }
    root=(sudo)
  fi
  say "installing $*"
  [[ -n ${refreshed:-} ]] || "${root[@]}" apt-get update -qq ||
    echo "apt-get update failed; trying with the lists that are here."
  refreshed=yes
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# The first Python that can make an environment with pip in it.
usable_python() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  return 1
}

# Installs the wheel below build/ and names it in CMAKE_PREFIX_PATH. libtorch_cpu of a CUDA wheel
# loads two small CUDA libraries even where nothing uses a GPU; its other dependencies are left out.
install_libtorch() {
  local folder=build/libtorch-$libtorch
  local venv=$folder/venv stamp=$folder/venv/installed python cuda
  if [[ ! -e $stamp ]]; then
    say "installing the torch $libtorch wheel into $venv"
    python=$(usable_python) || die "no python3 with venv: apt-get install python3-venv"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    pip() { "$venv/bin/python" -m pip install --quiet --no-deps "$@"; }
    pip "torch==$libtorch" || die "PyPI gave no torch $libtorch; is the version right, PyPI reachable?"
    cuda=$(sed -n "s/^cuda.* = '\([0-9]*\)\..*/\1/p" "$venv"/lib/python3*/site-packages/torch/version.py)
    case $cuda in
      '') ;;
      11 | 12) pip "nvidia-cuda-runtime-cu$cuda" "nvidia-cuda-cupti-cu$cuda" ;;
      *) pip "nvidia-cuda-runtime==$cuda.*" "nvidia-cuda-cupti==$cuda.*" ;;
    esac
    touch "$stamp"
  fi
  CMAKE_PREFIX_PATH=$(echo "$PWD/$venv"/lib/python3*/site-packages/torch)
  export CMAKE_PREFIX_PATH
}

# prepare PRESET [CMAKE_OPTION]...: afterwards $build is a configured folder.
prepare() {
  build=build/$1
  [[ -z $libtorch ]] || build=build/libtorch-$libtorch/${1/#dev/build}

  install_packages
  [[ -z $libtorch ]] || install_libtorch

  say "configuring $build"
  # Kept in the build folder, or a later run without the variable would find another libtorch.
  local prefixes=${CMAKE_PREFIX_PATH:-}
  cmake --preset "$1" -B "$build" ${prefixes:+-D "CMAKE_PREFIX_PATH=${prefixes//:/;}"} \
    "${@:2}"
}
