// Backtraces of the host program, shown with the names that the dynamic linker knows.
#include "host_sites.h"

#include "settings.h"

#include <algorithm>
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <cstdlib>
#include <map>
#include <mutex>

namespace strata::emulator {

namespace {

struct sites {
    call_site made, freed;
};
struct site_table {
    std::mutex lock;
    std::map<uint64_t, sites> by_address;
};
site_table & table() {
    static site_table & t = *new site_table;
    return t;
}

const void * own_library() {
    static const void * base = [] {
        Dl_info info{};
        dladdr(reinterpret_cast<void *>(&this_call_site), &info);
        return static_cast<const void *>(info.dli_fbase);
    }();
    return base;
}

std::string frame_name(void * address) {
    Dl_info info{};
    // A return address may be the next function's first.
    if (!dladdr(static_cast<char *>(address) - 1, &info)) return "?";
    std::string file = info.dli_fname ? info.dli_fname : "?";
    file = file.substr(file.rfind('/') + 1);
    char text[32];
    if (info.dli_sname) {
        int status = 0;
        char * readable = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
        std::string name = status == 0 ? readable : info.dli_sname;
        std::free(readable);
        if (const size_t end = name.find('('); end != std::string::npos) name.resize(end);
        std::snprintf(text, sizeof text, "+0x%zx", size_t(static_cast<char *>(address) - static_cast<char *>(info.dli_saddr)));
        return name + text + " (" + file + ")";
    }
    std::snprintf(text, sizeof text, "+0x%zx", size_t(static_cast<char *>(address) - static_cast<char *>(info.dli_fbase)));
    return file + text;
}

}  // namespace

call_site this_call_site() {
    call_site site;
    site.count = backtrace(site.frames, call_site::most);
    return site;
}

std::string describe_site(const call_site & site) {
    constexpr int shown_at_most = 6;
    std::string text, api;
    int shown = 0;
    for (int n = 0; n < site.count && shown < shown_at_most; n++) {
        Dl_info info{};
        const bool known = dladdr(static_cast<char *>(site.frames[n]) - 1, &info) != 0;
        if (known && info.dli_fbase == own_library()) {
            if (info.dli_sname && (std::string(info.dli_sname).starts_with("hip") || std::string(info.dli_sname).starts_with("strata_emulator"))) {
                api = info.dli_sname;
            }
            continue;
        }
        if (shown == 0 && !api.empty()) text += api + " called by ";
        text += (shown ? " < " : "") + frame_name(site.frames[n]);
        shown++;
    }
    return text.empty() ? (api.empty() ? "?" : api) : text;
}

void allocation_made(uint64_t begin) {
    if (!instruments().has(instrument_memory | instrument_host)) return;
    site_table & t = table();
    const call_site site = this_call_site();
    std::lock_guard hold(t.lock);
    t.by_address[begin] = {site, {}};
}

void allocation_freed(uint64_t begin) {
    if (!instruments().has(instrument_memory | instrument_host)) return;
    site_table & t = table();
    const call_site site = this_call_site();
    std::lock_guard hold(t.lock);
    t.by_address[begin].freed = site;
}

std::string allocation_sites(uint64_t begin) {
    site_table & t = table();
    std::lock_guard hold(t.lock);
    const auto found = t.by_address.find(begin);
    if (found == t.by_address.end()) return "";
    std::string text;
    if (found->second.made.count) text += "\n  allocated by " + describe_site(found->second.made);
    if (found->second.freed.count) text += "\n  freed by " + describe_site(found->second.freed);
    return text;
}

}  // namespace strata::emulator
