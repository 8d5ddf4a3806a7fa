// Size of the machine's memory. POSIX: system_memory_posix.cpp, Windows: system_memory_windows.cpp.
#pragma once
#include <cstdint>

namespace tq {

// Returns the bytes of physical memory; UINT64_MAX when the system does not tell.
uint64_t physical_memory_bytes();

} // namespace tq
