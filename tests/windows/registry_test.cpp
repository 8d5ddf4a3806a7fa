// Readings of Windows' registry: names of values that are 0, and texts of values below a key.
#include "base/registry.h"
#include "base/wide_text.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <string>
#include <windows.h>

using namespace tq;

namespace {

using Texts = std::vector<std::string>;

// A key of the user's that is removed again, with what is below it.
struct TemporaryKey {
    const std::string path = "Software\\tq-run-test-" + std::to_string(::GetCurrentProcessId());
    TemporaryKey() = default;
    TemporaryKey(const TemporaryKey&) = delete;
    TemporaryKey& operator=(const TemporaryKey&) = delete;
    ~TemporaryKey() { ::RegDeleteTreeW(HKEY_CURRENT_USER, wide_text(path).c_str()); }
    void set(const std::string& below, const std::string& name, DWORD type, const void* data, size_t bytes) const {
        REQUIRE(::RegSetKeyValueW(HKEY_CURRENT_USER, wide_text(path + below).c_str(), wide_text(name).c_str(), type, data,
                                  DWORD(bytes)) == ERROR_SUCCESS);
    }
    void number(const std::string& name, DWORD value) const { set("", name, REG_DWORD, &value, sizeof value); }
    void text(const std::string& below, const std::string& name, const std::wstring& text, DWORD type = REG_SZ) const {
        set(below, name, type, text.data(), (text.size() + 1) * sizeof(wchar_t));
    }
    Texts names_of_zeros() const {
        Texts out = registry_names_of_zeros(RegistryRoot::user, path);
        std::ranges::sort(out);
        return out;
    }
};

} // namespace

TEST_CASE("names of a key's values that are 0") {
    const TemporaryKey key;
    const std::string long_name = "C:\\" + std::string(5000, 'x') + ".json";
    CHECK(key.names_of_zeros().empty());
    key.number("C:\\größe\\日本.json", 0);
    key.number("C:\\off.json", 1);
    key.number(long_name, 0);
    key.text("", "C:\\text.json", L""); // whose bytes are 0
    const uint64_t wide = 0;            // more bytes than a number has
    key.set("", "C:\\wide.json", REG_QWORD, &wide, sizeof wide);
    key.number("C:\\z.json", 0);
    CHECK(key.names_of_zeros() == Texts{"C:\\größe\\日本.json", long_name, "C:\\z.json"});
}

TEST_CASE("texts below a key") {
    const TemporaryKey key;
    const auto texts = [&] { return registry_texts_below(RegistryRoot::user, key.path, "Driver"); };
    CHECK(texts().empty());
    key.text("\\0000", "Driver", L"C:\\größe.json");
    key.text("\\0001", "Other", L"C:\\other.json");
    key.text("\\0002", "Driver", std::wstring(L"C:\\a.json\0C:\\b.json\0", 20), REG_MULTI_SZ);
    const DWORD number = 0;
    key.set("\\0003", "Driver", REG_DWORD, &number, sizeof number);
    key.set("\\0004", "Driver", REG_SZ, L"C:\\open", 7 * sizeof(wchar_t)); // without a zero at its end
    key.text("\\0005", "Driver", L"");
    key.text("", "Driver", L"C:\\above.json");
    CHECK(texts() == Texts{"C:\\größe.json", "C:\\a.json", "C:\\b.json", "C:\\open"});
}
