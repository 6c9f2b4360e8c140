"""The system's Boost headers under the name that distgrad requires."""

import re

from conan import ConanFile
from conan.tools.files import load


class SystemBoost(ConanFile):
    name = "boost"
    package_type = "header-library"
    options = {"header_only": [True]}
    default_options = {"header_only": True}

    def set_version(self):
        text = load(self, "/usr/include/boost/version.hpp")
        number = int(re.search(r"#define BOOST_VERSION (\d+)", text).group(1))
        self.version = f"{number // 100000}.{number // 100 % 1000}.{number % 100}"

    def package_info(self):
        headers = self.cpp_info.components["headers"]
        headers.set_property("cmake_target_name", "Boost::headers")
        headers.includedirs = []  # the compiler looks into /usr/include by itself
        headers.bindirs = []
        headers.libdirs = []
