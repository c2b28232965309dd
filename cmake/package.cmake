# `cmake --install build/release` and `cpack --config build/release/CPackConfig.cmake`: the program, the small model, the
# service. The package is for the Debian that it was built on.
include(GNUInstallDirs)
install(TARGETS deepinfer RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/mini DESTINATION ${CMAKE_INSTALL_DATADIR}/deepinfer/models
        PATTERN golden EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

# What belongs to a system and not below a prefix.
install(FILES ${PROJECT_SOURCE_DIR}/packaging/deepinfer.service DESTINATION /lib/systemd/system COMPONENT system
        EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/packaging/default DESTINATION /etc/default RENAME deepinfer COMPONENT system
        EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the maintainers of DeepInfer")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs and serves DeepSeek-V4.1-Flash on CPUs")
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL Unspecified system)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/conffiles)
file(WRITE ${PROJECT_BINARY_DIR}/conffiles "/etc/default/deepinfer\n")
include(CPack)
