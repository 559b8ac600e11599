// What cmake/embed_page.cmake makes of src/server/page: tables that live as long as the program.
#pragma once

#include <span>
#include <string_view>

namespace nibble::server {

struct PageFile {
  std::string_view path;  // as requested: "/", "/page/app.css"
  std::string_view content_type;
  std::string_view etag;  // of both forms, therefore weak
  std::string_view text;
  std::string_view gzip;
};

struct PageHeader {
  std::string_view name;
  std::string_view value;
};

std::span<const PageFile> page_files();
// Sent with every file: content-security policy and the like.
std::span<const PageHeader> page_headers();

}  // namespace nibble::server
