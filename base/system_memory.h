// The machine's memory, and what of it this process keeps. POSIX: system_memory_posix.cpp, Windows: system_memory_windows.cpp.
#pragma once
#include <cstdint>

namespace tq {

// Returns the bytes of physical memory; UINT64_MAX when the system does not tell.
uint64_t physical_memory_bytes();

// Gives memory that was freed back to the system, as far as the C library can: it may else keep it for ever.
void return_freed_memory();

} // namespace tq
