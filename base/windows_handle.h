// A handle of Windows' that closes itself. Windows only.
#pragma once
#include <windows.h>

namespace tq {

struct WindowsHandle {
    HANDLE handle;
    explicit WindowsHandle(HANDLE handle = nullptr) : handle(handle) {}
    WindowsHandle(const WindowsHandle&) = delete;
    WindowsHandle& operator=(const WindowsHandle&) = delete;
    ~WindowsHandle() {
        if (valid()) ::CloseHandle(handle);
    }
    bool valid() const { return handle != nullptr && handle != INVALID_HANDLE_VALUE; }
};

} // namespace tq
