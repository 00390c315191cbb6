/* placeholder, replaced by the functions themselves */
