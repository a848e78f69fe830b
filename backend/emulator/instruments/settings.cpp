// Names that are not known are told once, and the others hold.
#include "settings.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <unistd.h>

namespace strata::emulator {

namespace {

struct kind_name {
    std::string_view name;
    uint32_t bits;
};
constexpr kind_name kinds[] = {
    {"memory", instrument_memory}, {"init", instrument_init},   {"race", instrument_race}, {"wait", instrument_wait},
    {"host", instrument_host},     {"align", instrument_align}, {"all", sanitizer_kinds},  {"1", sanitizer_kinds},
    {"none", 0},                   {"0", 0},
};

uint32_t parse_kinds(std::string_view list) {
    uint32_t on = 0;
    while (!list.empty()) {
        const size_t comma = list.find(',');
        const std::string_view word = list.substr(0, comma);
        bool known = word.empty();
        for (const kind_name & k : kinds) {
            if (k.name != word) continue;
            on |= k.bits;
            known = true;
        }
        if (!known) {
            std::fprintf(stderr, "strata-emulator: STRATA_SANITIZE: %.*s is none of memory, init, race, wait, host, align, all\n",
                         int(word.size()), word.data());
        }
        list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    }
    return on;
}

/// A file's name, in which %p stands for the process.
std::string file_name(const char * variable) {
    const char * given = std::getenv(variable);
    std::string name = given ? given : "";
    if (const size_t at = name.find("%p"); at != std::string::npos) name.replace(at, 2, std::to_string(getpid()));
    return name;
}

instrument_settings read() {
    instrument_settings s;
    if (const char * list = std::getenv("STRATA_SANITIZE")) s.on = parse_kinds(list);
    s.count_file = file_name("STRATA_COUNT");
    s.report_file = file_name("STRATA_SANITIZE_REPORTS");
    if (!s.report_file.empty()) {  // from now on there, if empty: who waits for reports can tell that something was looked at
        if (std::FILE * file = std::fopen(s.report_file.c_str(), "a")) std::fclose(file);
    }
    if (!s.count_file.empty()) s.on |= instrument_count;
    const char * model = std::getenv("STRATA_MODEL");
    if (model && *model && std::string_view(model) != "0") {
        s.model = model;
        if (s.has(instrument_count)) s.on |= instrument_time;
        else std::fprintf(stderr, "strata-emulator: STRATA_MODEL needs STRATA_COUNT=file.json: that is where modelled times are written\n");
    }
    return s;
}

}  // namespace

const instrument_settings & instruments() {
    static const instrument_settings & settings = *new instrument_settings(read());
    return settings;
}

}  // namespace strata::emulator
