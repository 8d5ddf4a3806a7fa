// Where Windows drivers register: the Vulkan loader looks for manifests in these places, and doctor shows what it would find.
// Values are read twice, for the size and the content; one that changes in between is left out. At most 1000 entries of a key are
// read, since a damaged key must not stop a report.
#include "base/registry.h"
#include "base/wide_text.h"
#include <algorithm>
#include <windows.h>

namespace tq {
namespace {

constexpr DWORD longest_name = 16384; // of a value, with the zero at its end; keys' are shorter

struct Key {
    HKEY handle = nullptr;
    Key(RegistryRoot root, const std::string& path) {
        const HKEY top = root == RegistryRoot::machine ? HKEY_LOCAL_MACHINE : HKEY_CURRENT_USER;
        if (::RegOpenKeyExW(top, wide_text(path).c_str(), 0, KEY_READ, &handle) != ERROR_SUCCESS) handle = nullptr;
    }
    Key(const Key&) = delete;
    Key& operator=(const Key&) = delete;
    ~Key() {
        if (handle != nullptr) ::RegCloseKey(handle);
    }
};

// Appends each text of a value, which may be one text or a list. Appends none if the value has another type or does not exist.
void add_texts(std::vector<std::string>& to, HKEY key, const wchar_t* below, const std::wstring& name) {
    constexpr DWORD types = RRF_RT_REG_SZ | RRF_RT_REG_MULTI_SZ;
    DWORD bytes = 0;
    if (::RegGetValueW(key, below, name.c_str(), types, nullptr, nullptr, &bytes) != ERROR_SUCCESS) return;
    std::wstring texts(bytes / sizeof(wchar_t), L'\0'); // with the zeros between and behind them
    bytes = DWORD(texts.size() * sizeof(wchar_t));
    if (::RegGetValueW(key, below, name.c_str(), types, nullptr, texts.data(), &bytes) != ERROR_SUCCESS) return;
    texts.resize(bytes / sizeof(wchar_t));
    for (size_t begin = 0, end; begin < texts.size(); begin = end + 1) {
        end = std::min(texts.find(L'\0', begin), texts.size());
        if (end > begin) to.push_back(narrow_text(std::wstring_view(texts).substr(begin, end - begin)));
    }
}

} // namespace

std::vector<std::string> registry_names_of_zeros(RegistryRoot root, const std::string& path) {
    const Key key(root, path);
    std::vector<std::string> out;
    std::wstring name(longest_name, L'\0');
    LSTATUS status = key.handle == nullptr ? ERROR_NO_MORE_ITEMS : ERROR_SUCCESS;
    for (DWORD i = 0; status != ERROR_NO_MORE_ITEMS && i < 1000; i++) {
        DWORD length = longest_name, type = 0, value = 1, bytes = sizeof value;
        status = ::RegEnumValueW(key.handle, i, name.data(), &length, nullptr, &type, reinterpret_cast<BYTE*>(&value), &bytes);
        if (status == ERROR_SUCCESS && type == REG_DWORD && value == 0)
            out.push_back(narrow_text(std::wstring_view(name).substr(0, length)));
    }
    return out;
}

std::vector<std::string> registry_texts_below(RegistryRoot root, const std::string& path, const std::string& name) {
    const Key key(root, path);
    std::vector<std::string> out;
    std::wstring below(longest_name, L'\0');
    LSTATUS status = key.handle == nullptr ? ERROR_NO_MORE_ITEMS : ERROR_SUCCESS;
    for (DWORD i = 0; status != ERROR_NO_MORE_ITEMS && i < 1000; i++) {
        DWORD length = longest_name;
        status = ::RegEnumKeyExW(key.handle, i, below.data(), &length, nullptr, nullptr, nullptr, nullptr);
        if (status == ERROR_SUCCESS) add_texts(out, key.handle, below.c_str(), wide_text(name));
    }
    return out;
}

} // namespace tq
