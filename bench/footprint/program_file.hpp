// The sizes of a program's parts, as size(1) adds them up.
#pragma once

#include <elf.h>

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace footprint {

struct Sizes {
  std::uint64_t text = 0, data = 0, bss = 0;
};

/// @throws std::runtime_error when `path` is no 64-bit ELF file.
inline Sizes sizes_of(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  if (!file || header.e_ident[EI_MAG0] != ELFMAG0 || header.e_ident[EI_CLASS] != ELFCLASS64) {
    throw std::runtime_error(path + " is no 64-bit ELF file");
  }
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  file.seekg(static_cast<std::streamoff>(header.e_shoff));
  file.read(reinterpret_cast<char*>(sections.data()),
            static_cast<std::streamsize>(sections.size() * sizeof(Elf64_Shdr)));
  Sizes sizes;
  for (auto const& section : sections) {
    if ((section.sh_flags & SHF_ALLOC) == 0) continue;
    auto& part = (section.sh_flags & SHF_WRITE) == 0 ? sizes.text
                 : section.sh_type == SHT_NOBITS     ? sizes.bss
                                                     : sizes.data;
    part += section.sh_size;
  }
  return sizes;
}

}  // namespace footprint
